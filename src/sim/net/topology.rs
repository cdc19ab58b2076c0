//! Who is linked to whom.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::link::Contacts;
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// The shape of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each site with the next.
    Line,
    /// Site 0 with all others.
    Star,
    /// Everybody with everybody.
    Mesh,
    /// A line whose ends meet.
    Ring,
    /// Site 0 is a boat; the others are shores it calls at one after the other.
    Ferry,
}

impl Topology {
    /// All of them.
    pub const ALL: [Topology; 5] =
        [Topology::Line, Topology::Star, Topology::Mesh, Topology::Ring, Topology::Ferry];

    /// The links between `sites` sites: every pair once, the lower site first, in order.
    #[must_use]
    pub fn links(self, sites: usize) -> Vec<(SiteIx, SiteIx)> {
        let pairs = (0..sites).flat_map(|a| (a + 1..sites).map(move |b| (a, b)));
        let linked = |&(a, b): &(SiteIx, SiteIx)| match self {
            Topology::Line => b == a + 1,
            Topology::Star | Topology::Ferry => a == 0,
            Topology::Mesh => true,
            Topology::Ring => b == a + 1 || (a == 0 && b == sites - 1),
        };
        pairs.filter(linked).collect()
    }

    /// When the links of `sites` sites are in contact, where they are not always: a ferry stays `stay`
    /// at each shore and sails `sail` to the next, and from the last back to the first.
    #[must_use]
    pub fn contacts(
        self,
        sites: usize,
        stay: Duration,
        sail: Duration,
    ) -> Vec<(SiteIx, SiteIx, Contacts)> {
        match self {
            Topology::Line | Topology::Star | Topology::Mesh | Topology::Ring => Vec::new(),
            Topology::Ferry => {
                let (leg, links) = (stay + sail, self.links(sites));
                let every = leg * links.len() as u32;
                let call = |(n, (a, b)): (usize, (SiteIx, SiteIx))| {
                    let first = Micros::ZERO.after(leg * n as u32);
                    (a, b, Contacts { first, window: stay, every })
                };
                links.into_iter().enumerate().map(call).collect()
            }
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Topology::Line => "line",
            Topology::Star => "star",
            Topology::Mesh => "mesh",
            Topology::Ring => "ring",
            Topology::Ferry => "ferry",
        })
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(word: &str) -> Result<Topology, String> {
        let known = Topology::ALL.into_iter().find(|t| t.to_string() == word);
        known.ok_or_else(|| {
            let all = Topology::ALL.map(|t| t.to_string()).join(", ");
            format!("unknown topology {word:?}: one of {all}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_the_links_it_is_named_for() {
        for (shape, links) in [
            (Topology::Line, vec![(0, 1), (1, 2), (2, 3)]),
            (Topology::Star, vec![(0, 1), (0, 2), (0, 3)]),
            (Topology::Mesh, vec![(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
            (Topology::Ring, vec![(0, 1), (0, 3), (1, 2), (2, 3)]),
            (Topology::Ferry, vec![(0, 1), (0, 2), (0, 3)]),
        ] {
            assert_eq!(shape.links(4), links, "{shape}");
            assert_eq!(shape.links(2), [(0, 1)], "{shape}");
            assert_eq!(shape.links(1), [], "{shape}");
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        let unknown = "unknown topology \"tree\": one of line, star, mesh, ring, ferry";
        assert_eq!("tree".parse::<Topology>(), Err(unknown.to_string()));
    }

    #[test]
    fn a_ferry_is_at_one_shore_at_a_time_and_at_each_in_turn() {
        let (stay, sail) = (Duration::from_secs(60), Duration::from_secs(30));
        let contacts = Topology::Ferry.contacts(4, stay, sail);
        let shore = |seconds: u64| {
            let now = Micros(seconds * 1_000_000);
            let open = contacts.iter().filter(|(_, _, c)| c.open(now)).map(|(_, b, _)| *b);
            open.collect::<Vec<_>>()
        };
        assert_eq!(
            [shore(0), shore(59), shore(60), shore(90)],
            [vec![1], vec![1], vec![], vec![2]]
        );
        assert_eq!([shore(180), shore(269), shore(270)], [vec![3], vec![], vec![1]]);
        assert!((0..1000).all(|s| shore(s).len() <= 1));
        assert_eq!(Topology::Star.contacts(4, stay, sail), []);
    }
}
