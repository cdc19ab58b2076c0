//! The exporter on real directories: names, links, collisions, crashes between two steps, commands.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use consign_core::id::{BlobDigest, BodyNo, ConnId, SegmentId, Seq};
use consign_core::inbox::FileMark;
use consign_core::segment::Meta;
use consign_core::store::StoreEvent;

use super::*;

/// Content by number of body.
#[derive(Default)]
struct Shelf {
    bodies: HashMap<u64, Vec<u8>>,
    /// Files of blobs.
    blobs: HashMap<u64, std::path::PathBuf>,
}

impl Source for Shelf {
    fn read(&self, body: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        let data = match body {
            Body::Inline(number) => self.bodies.get(&number.0).cloned(),
            Body::Blob(number) => self.blobs.get(&number.0).map(|path| fs::read(path).unwrap()),
        };
        let data = data.ok_or_else(|| StoreFault::Missing("the body".into()))?;
        let from = usize::try_from(offset).unwrap().min(data.len());
        Ok(Bytes::copy_from_slice(&data[from..data.len().min(from + len)]))
    }

    fn open(&self, blob: BlobNo) -> Result<Option<OwnedFd>, StoreFault> {
        Ok(self.blobs.get(&blob.0).map(|path| fs::File::open(path).unwrap().into()))
    }
}

/// Where the exporter's words go.
struct Ear(std::sync::Mutex<Sender<(u64, ExportStep)>>);

impl Sink for Ear {
    fn node(&self, input: Input) {
        match input {
            Input::Export { job, step } => self.0.lock().unwrap().send((job, step)).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn conn(&self, _conn: ConnId, _event: StoreEvent) {}
}

const RULE: RuleId = RuleId(7);

struct Room {
    dir: tempfile::TempDir,
    inbox: Inbox,
    heard: Receiver<(u64, ExportStep)>,
    jobs: u64,
}

impl Room {
    fn new(command: &[&str], timeout: Duration) -> Room {
        Room::with(Shelf::default(), command, timeout)
    }

    /// Bodies 1 to 20 hold their number in words.
    fn with(mut shelf: Shelf, command: &[&str], timeout: Duration) -> Room {
        for n in 1..=20 {
            shelf.bodies.insert(n, content(n));
        }
        let dir = tempfile::tempdir().unwrap();
        let rule = InboxDir {
            id: RULE,
            picks: String::new(),
            dir: dir.path().join("in"),
            command: command.iter().map(|s| s.to_string()).collect(),
            timeout,
        };
        let inbox = Inbox::new(&[rule], Box::new(shelf), InboxStates::default());
        let (sender, heard) = channel();
        inbox.start(Arc::new(Ear(std::sync::Mutex::new(sender))));
        Room { dir, inbox, heard, jobs: 0 }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("in")
    }

    fn ask(&mut self, seq: u64, name: &str, task: ExportTask) -> ExportStep {
        let data = content(seq);
        let digest = BlobDigest(*blake3::hash(&data).as_bytes());
        self.ask_about(seq, name, task, Body::Inline(BodyNo(seq)), (digest, data.len() as u64))
    }

    fn ask_about(
        &mut self,
        seq: u64,
        name: &str,
        task: ExportTask,
        body: Body,
        (digest, size): (BlobDigest, u64),
    ) -> ExportStep {
        self.jobs += 1;
        let labels = vec![("Kind-of".to_owned(), "photo".to_owned())];
        self.inbox.export(ExportJob {
            job: self.jobs,
            rule: RULE,
            seq: Seq(seq),
            id: SegmentId([0xab; 32]),
            digest,
            size,
            body,
            meta: Meta { name: name.into(), labels, ..Meta::default() },
            origin: "shop-7".into(),
            task,
        });
        let (job, step) = self.heard.recv_timeout(Duration::from_secs(60)).expect("an answer");
        assert_eq!(job, self.jobs);
        step
    }

    fn write(&mut self, seq: u64, name: &str) -> (String, FileMark) {
        match self.ask(seq, name, ExportTask::Write) {
            ExportStep::Named { name, mark } => (name, mark),
            other => panic!("{name:?}: {other:?}"),
        }
    }

    fn place(&mut self, seq: u64, (name, mark): &(String, FileMark)) -> ExportStep {
        let task = ExportTask::Place { name: name.clone(), mark: *mark };
        self.ask(seq, "whatever", task)
    }

    /// Writes and places; its name.
    fn put(&mut self, seq: u64, name: &str) -> String {
        let named = self.write(seq, name);
        assert_eq!(self.place(seq, &named), ExportStep::Placed, "{name}");
        named.0
    }

    fn aside(&self) -> usize {
        fs::read_dir(self.path().join(".consign")).unwrap().count()
    }
}

fn content(n: u64) -> Vec<u8> {
    format!("content of {n}").into_bytes()
}

fn minute() -> Duration {
    Duration::from_secs(60)
}

/// A disk that lacks the room says so before anything is read or written: at each try it would be filled
/// anew.
#[test]
fn a_copy_that_does_not_fit_is_not_begun() {
    let mut room = Room::new(&[], minute());
    // Content that would be found missing if it were read.
    let (body, nothing) = (Body::Inline(BodyNo(99)), BlobDigest([0; 32]));
    match room.ask_about(99, "large", ExportTask::Write, body, (nothing, 1 << 50)) {
        ExportStep::Later(why) => assert!(why.starts_with("the copy, 1.0 PiB: "), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(room.path().join(".consign")).unwrap().count(), 0);
}

#[test]
fn a_file_appears_whole_under_its_name_and_its_directories() {
    let mut room = Room::new(&[], minute());
    let named = room.write(1, "a/b c/d.txt");
    assert_eq!(named.0, "a/b c/d.txt");
    assert!(!room.path().join("a").exists(), "nothing is seen of it yet");
    assert_eq!(room.place(1, &named), ExportStep::Placed);
    let file = room.path().join("a/b c/d.txt");
    assert_eq!(fs::read(&file).unwrap(), content(1));
    assert_eq!((fs::metadata(&file).unwrap().nlink(), room.aside()), (1, 0));
}

#[test]
fn names_that_are_taken_get_a_number() {
    let mut room = Room::new(&[], minute());
    fs::create_dir(room.path()).unwrap();
    fs::write(room.path().join("a.txt"), "somebody's").unwrap();
    assert_eq!(room.put(1, "a.txt"), "a (2).txt");
    // A name that is given out is not given out twice.
    let first = room.write(2, "a.txt");
    let second = room.write(3, "a.txt");
    assert_eq!((first.0.as_str(), second.0.as_str()), ("a (3).txt", "a (4).txt"));
    assert_eq!(room.place(3, &second), ExportStep::Placed);
    assert_eq!(room.place(2, &first), ExportStep::Placed);
    assert_eq!(fs::read(room.path().join("a.txt")).unwrap(), b"somebody's");
    assert_eq!(fs::read(room.path().join("a (3).txt")).unwrap(), content(2));
}

#[test]
fn a_name_below_that_of_a_file_gets_another_directory_whichever_comes_first() {
    // Shards of the files `film` and `film/1/0`, as a node gives them out.
    let mut room = Room::new(&[], minute());
    assert_eq!(room.put(1, "film/1/0"), "film/1/0");
    assert_eq!(room.put(2, "film/1/0/1/0"), "film/1/0 (2)/1/0");
    assert_eq!(room.put(3, "film/1/0/1/1"), "film/1/0 (2)/1/1", "they stay together");
    // The other way round.
    assert_eq!(room.put(4, "disc/1/0/1/0"), "disc/1/0/1/0");
    assert_eq!(room.put(5, "disc/1/0"), "disc/1/0 (2)");
    // While neither is in the directory yet.
    let (file, below) = (room.write(6, "reel.d"), room.write(7, "reel.d/1/0"));
    assert_eq!((file.0.as_str(), below.0.as_str()), ("reel.d", "reel (2).d/1/0"));
    let (below, file) = (room.write(8, "tape/1/0"), room.write(9, "tape"));
    assert_eq!((below.0.as_str(), file.0.as_str()), ("tape/1/0", "tape (2)"));
    for (seq, named) in [(9, &file), (8, &below)] {
        assert_eq!(room.place(seq, named), ExportStep::Placed);
    }
    assert_eq!(fs::read(room.path().join("film/1/0")).unwrap(), content(1));
    assert_eq!(fs::read(room.path().join("film/1/0 (2)/1/0")).unwrap(), content(2));
}

#[test]
fn hostile_names_are_refused_and_leave_nothing() {
    let mut room = Room::new(&[], minute());
    for name in ["../x", "/etc/x", "a/../../x", "a\nb", "\u{202e}x", ""] {
        match room.ask(1, name, ExportTask::Write) {
            ExportStep::Never(why) => assert!(why.starts_with("hostile_name: "), "{why}"),
            other => panic!("{name:?}: {other:?}"),
        }
    }
    let mark = FileMark::default();
    for name in ["../x", ".consign/x", "/x"] {
        let step = room.place(1, &(name.to_owned(), mark));
        assert!(matches!(step, ExportStep::Never(_)), "{name}: {step:?}");
    }
    assert_eq!(fs::read_dir(room.dir.path()).unwrap().count(), 0);
    assert_eq!(room.put(1, ".hidden"), "_hidden");
}

#[test]
fn links_below_the_directory_lead_nowhere() {
    let mut room = Room::new(&[], minute());
    let elsewhere = room.dir.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir(room.path()).unwrap();
    symlink(&elsewhere, room.path().join("d")).unwrap();
    symlink(elsewhere.join("target"), room.path().join("f")).unwrap();
    let step = room.ask(1, "d/x", ExportTask::Write);
    assert!(matches!(&step, ExportStep::Later(why) if why.contains("link")), "{step:?}");
    assert_eq!(room.put(2, "f"), "f (2)", "a link that leads nowhere is a name that is taken");
    // One that is put there between the two steps.
    let named = room.write(3, "e/x");
    symlink(&elsewhere, room.path().join("e")).unwrap();
    let step = room.place(3, &named);
    assert!(matches!(step, ExportStep::Later(_)), "{step:?}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // The hidden folder itself.
    fs::remove_dir_all(room.path().join(".consign")).unwrap();
    symlink(&elsewhere, room.path().join(".consign")).unwrap();
    let step = room.ask(4, "y", ExportTask::Write);
    assert!(matches!(step, ExportStep::Later(_)), "{step:?}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn what_was_placed_before_a_crash_is_known_again_and_a_strangers_file_is_not() {
    let mut room = Room::new(&[], minute());
    let named = room.write(1, "a");
    assert_eq!(room.place(1, &named), ExportStep::Placed);
    assert_eq!(room.place(1, &named), ExportStep::Placed, "placed once more after a crash");
    // The consumer took it and somebody else put the same content there.
    fs::remove_file(room.path().join("a")).unwrap();
    let step = room.place(1, &named);
    assert!(matches!(step, ExportStep::Lost(_)), "{step:?}");
    fs::write(room.path().join("a"), content(1)).unwrap();
    let step = room.place(1, &named);
    assert!(matches!(step, ExportStep::Lost(_)), "{step:?}");
    // A crash of a file system that cannot rename without replacing: both names are there.
    let named = room.write(2, "b");
    let aside = room.path().join(".consign").join(format!("{:016x}-2", RULE.0));
    fs::hard_link(&aside, room.path().join("b")).unwrap();
    assert_eq!(room.place(2, &named), ExportStep::Placed);
    assert_eq!((room.aside(), fs::read(room.path().join("b")).unwrap()), (0, content(2)));
}

#[test]
fn a_name_that_somebody_takes_between_two_steps_is_not_replaced() {
    let mut room = Room::new(&[], minute());
    let named = room.write(1, "a");
    fs::write(room.path().join("a"), "mine").unwrap();
    let step = room.place(1, &named);
    assert!(matches!(step, ExportStep::Lost(_)), "{step:?}");
    assert_eq!(fs::read(room.path().join("a")).unwrap(), b"mine");
    assert_eq!(room.put(1, "a"), "a (2)");
    assert_eq!(room.aside(), 0);
}

#[test]
fn content_that_is_missing_or_not_what_it_was_is_not_given_out() {
    let mut room = Room::new(&[], minute());
    let wrong = (BlobDigest([0; 32]), content(1).len() as u64);
    for (body, known) in [
        (Body::Inline(BodyNo(1)), wrong),
        (Body::Inline(BodyNo(999)), wrong),
        (Body::Inline(BodyNo(1)), (BlobDigest(*blake3::hash(&content(1)).as_bytes()), 9_999)),
    ] {
        let step = room.ask_about(1, "a", ExportTask::Write, body, known);
        assert!(matches!(step, ExportStep::Corrupt(_)), "{step:?}");
    }
    assert_eq!(room.aside(), 0);
}

#[test]
fn content_files_are_copied_or_share_blocks_and_are_never_linked() {
    let store = tempfile::tempdir().unwrap();
    let blob = store.path().join("7");
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(&blob, &data).unwrap();
    let shelf = Shelf { blobs: [(7, blob.clone())].into(), ..Shelf::default() };
    let mut room = Room::with(shelf, &[], minute());
    let known = (BlobDigest(*blake3::hash(&data).as_bytes()), data.len() as u64);
    let step = room.ask_about(1, "big", ExportTask::Write, Body::Blob(BlobNo(7)), known);
    let ExportStep::Named { name, mark } = step else { panic!("{step:?}") };
    assert_eq!(room.place(1, &(name, mark)), ExportStep::Placed);
    let file = room.path().join("big");
    assert!(fs::read(&file).unwrap() == data);
    assert_eq!(fs::metadata(&blob).unwrap().nlink(), 1);
    assert_ne!(fs::metadata(&blob).unwrap().ino(), fs::metadata(&file).unwrap().ino());
}

#[test]
fn a_directory_that_cannot_be_written_to_is_trouble_that_may_pass() {
    let mut room = Room::new(&[], minute());
    fs::write(room.path(), "a file where the directory should be").unwrap();
    let step = room.ask(1, "a", ExportTask::Write);
    assert!(matches!(step, ExportStep::Later(_)), "{step:?}");
    fs::remove_file(room.path()).unwrap();
    assert_eq!(room.put(1, "a"), "a");
}

fn make_fifo(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
}

fn script(dir: &Path, text: &str) -> String {
    let path = dir.join("script");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs `text` as the command on a file that is in its place.
fn command(text: &str, timeout: Duration) -> (Room, ExportStep) {
    let scripts = tempfile::tempdir().unwrap();
    let script = script(scripts.path(), text);
    let mut room = Room::new(&["/bin/sh", &script, "argument"], timeout);
    let name = room.put(1, "a b");
    let step = room.ask(1, "a b", ExportTask::Run { name, run: 3 });
    (room, step)
}

fn ran(step: ExportStep) -> (Option<i32>, String, String) {
    match step {
        ExportStep::Ran { exit, output, error } => {
            (exit, String::from_utf8_lossy(&output).into_owned(), error)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_is_told_everything() {
    let text = "cat \"$CONSIGN_FILE\"; echo; echo \"$CONSIGN_EXPORT_ID $CONSIGN_NAME $CONSIGN_ORIGIN \
                $CONSIGN_SIZE $CONSIGN_RUN $CONSIGN_LABEL_KIND_OF $1\"; echo \"$CONSIGN_SEGMENT\" >&2; pwd";
    let (room, step) = command(text, minute());
    let (exit, output, error) = ran(step);
    let path = room.path().canonicalize().unwrap();
    let expected = format!(
        "content of 1\n{:016x}-1 a b shop-7 12 3 photo argument\n{}\n{}\n",
        RULE.0,
        "ab".repeat(32),
        path.display()
    );
    assert_eq!((exit, output, error), (Some(0), expected, String::new()));
}

#[test]
fn how_a_command_ends_is_told_with_the_end_of_what_it_printed() {
    let (_room, step) = command("yes 0123456789 | head -n 100000; echo bad >&2; exit 3", minute());
    let (exit, output, error) = ran(step);
    assert_eq!((exit, output.len()), (Some(3), 4096));
    assert!(output.ends_with("0123456789\nbad\n") && error.contains('3'), "{error}");
    let (_room, step) = command("kill -9 $$", minute());
    let (exit, _, error) = ran(step);
    assert!(exit.is_none() && error.contains("signal"), "{error}");
    let mut room = Room::new(&["/nowhere/at/all"], minute());
    let name = room.put(1, "a");
    let (exit, _, error) = ran(room.ask(1, "a", ExportTask::Run { name, run: 1 }));
    assert!(exit.is_none() && error.contains("cannot be run"), "{error}");
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_all_it_started() {
    // Whoever holds the fifo open for writing lives; reading it ends when nobody does.
    let fifo = tempfile::tempdir().unwrap();
    let (path, hold) = (fifo.path().join("alive"), fifo.path().join("hold"));
    // Nobody ever writes to `hold`.
    make_fifo(&path);
    make_fifo(&hold);
    let text = format!(
        "exec 3<>'{path}' 4>'{path}' 3>&-; (read x <'{hold}') & echo begun; wait",
        path = path.display(),
        hold = hold.display()
    );
    let (_room, step) = command(&text, Duration::from_millis(1500));
    let (exit, output, error) = ran(step);
    assert_eq!((exit, output.as_str()), (None, "begun\n"));
    assert!(error.contains("longer than"), "{error}");
    let mut end = Vec::new();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let reader = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
    rustix::io::ioctl_fionbio(&reader, false).unwrap();
    std::io::Read::read_to_end(&mut fs::File::from(reader), &mut end).unwrap();
}

#[test]
fn stopping_ends_a_command_that_runs() {
    let scripts = tempfile::tempdir().unwrap();
    let (begun, hold) = (scripts.path().join("begun"), scripts.path().join("hold"));
    make_fifo(&begun);
    make_fifo(&hold);
    let script = script(
        scripts.path(),
        &format!("echo x >'{}'; read x <'{}'", begun.display(), hold.display()),
    );
    let mut room = Room::new(&["/bin/sh", &script], minute() * 60);
    let name = room.put(1, "a");
    room.inbox.export(ExportJob {
        job: 99,
        rule: RULE,
        seq: Seq(1),
        id: SegmentId([0; 32]),
        digest: BlobDigest([0; 32]),
        size: 1,
        body: Body::Inline(BodyNo(1)),
        meta: Meta::default(),
        origin: String::new(),
        task: ExportTask::Run { name, run: 1 },
    });
    assert_eq!(fs::read(&begun).unwrap(), b"x\n");
    room.inbox.stop();
    let (job, step) = room.heard.recv().unwrap();
    assert_eq!(job, 99);
    assert!(matches!(&step, ExportStep::Later(why) if why.contains("stopped")), "{step:?}");
}
