//! How processes of sites begin and end.

use consign_core::ledger::rows::MetaName;
use consign_core::node::Input;
use consign_core::time::UnixMillis;

use super::process::Process;
use super::rng::Rng;
use super::seen::{Death, Seen, SiteIx};
use super::time::Micros;
use super::world::World;

impl World {
    /// Starts a process on what its store holds.
    pub fn start(&mut self, ix: SiteIx) {
        let site = &mut self.sites[ix];
        site.starting = false;
        site.on_ballast = false;
        if site.process.is_some() {
            return;
        }
        self.edit_config(ix);
        let site = &mut self.sites[ix];
        let recovery = match site.store.recover() {
            Ok(recovery) => recovery,
            Err(fault) => {
                let why = format!("does not start: {fault}");
                self.facts(ix);
                return self.watch.say(self.now, ix, || why);
            }
        };
        let high = UnixMillis(recovery.meta_value(MetaName::TimeHigh));
        let boot = recovery.meta_value(MetaName::Boot) + 1;
        let now = site.clocks.start(self.now, high);
        let every = self.options.knobs.checkpoint_every;
        let tap = self.recording.as_ref().map(|recording| {
            recording.note(&format!("{} {} starts", self.now, site.config.name));
            recording.start(ix as u32, &site.config, &recovery, now)
        });
        let seed = Rng::stream(self.options.seed, 1_000 + ix as u64).next() ^ boot;
        let started = Process::start(&site.config, (every, seed), recovery, self.now, now);
        site.inbox.clear();
        site.frozen_until = Micros::ZERO;
        match started {
            Ok(mut process) => {
                process.record(tap);
                site.process = Some(process);
            }
            Err(error) => {
                let why = format!("does not start: {error}");
                return self.watch.say(self.now, ix, || why);
            }
        }
        self.facts(ix);
        self.watch.see(self.now, ix, &Seen::Started { boot });
        self.net.listen(ix, true);
        self.quay.net.listen(ix, true);
        self.enrol(ix, false);
    }

    /// Asks a process to stop.
    pub fn stop(&mut self, ix: SiteIx) {
        let Some((process, ..)) = self.split(ix) else { return };
        if !process.stopping {
            process.stopping = true;
            self.watch.see(self.now, ix, &Seen::Stopping);
            self.net.listen(ix, false);
            self.quay.net.listen(ix, false);
            self.input(ix, Input::Stop);
        }
    }

    /// A process ends.
    pub fn die(&mut self, ix: SiteIx, how: Death) {
        if self.sites[ix].process.is_none() {
            return;
        }
        let now = self.now;
        if how == Death::Stopped {
            self.say_goodbye(ix);
        }
        if let Some(recording) = &self.recording {
            recording.note(&format!("{now} {} ends: {how:?}", self.sites[ix].config.name));
        }
        let site = &mut self.sites[ix];
        let Some(mut process) = site.process.take() else { return };
        let unanswered = process.unanswered();
        site.inbox.clear();
        site.frozen_until = Micros::ZERO;
        match how {
            Death::PowerCut => site.store.power_cut(),
            Death::Killed | Death::Halted | Death::Stopped => site.store.kill(),
        }
        self.net.listen(ix, false);
        self.net.host_down(now, ix, how == Death::PowerCut);
        self.quay.net.listen(ix, false);
        self.quay.net.host_down(now, ix, how == Death::PowerCut);
        self.facts(ix);
        self.watch.see(now, ix, &Seen::Died(how));
        self.watch.unsent.extend(unanswered.into_iter().map(|job| (ix, job)));
    }

    /// The runtime's end of a drained run: every session may say goodbye before its socket closes.
    fn say_goodbye(&mut self, ix: SiteIx) {
        let at = self.now;
        let Some((process, mut around, reckon, _)) = self.split(ix) else { return };
        process.goodbye(at, around.now);
        while let Some((_, conn)) = process.next_wire().filter(|(wake, _)| *wake <= at) {
            process.run_wire(conn, &mut around, &|deadline| reckon.when(deadline));
        }
    }
}
