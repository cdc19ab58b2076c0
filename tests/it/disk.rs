//! A disk that fills up, breaks, or loses its process at a chosen call: `tests/shim/full_disk.c`,
//! built by the C compiler when a test first asks for it and preloaded into the process under test.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// A word of the state that test and process share; numbers as in the C source.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Word {
    /// Bytes that files below the directory may take.
    Capacity = 1,
    /// The process dies instead of this counted call; 0 is never.
    KillAt = 2,
    /// The process dies instead of this sync; 0 is never.
    KillSync = 3,
    /// This sync fails with EIO; 0 is none.
    BreakSync = 4,
    /// Calls so far that change files.
    Calls = 5,
    /// Syncs among them.
    Syncs = 6,
    /// Calls refused or cut short for want of space.
    Refused = 7,
    /// Bytes written so far.
    Bytes = 10,
}

const MAGIC: u64 = 0x636f_6e73_6967_6e31;
const STALE: u64 = 9;

/// A watched directory.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    state: PathBuf,
    words: File,
}

impl Disk {
    /// Watches `dir`, which exists, by way of a state file beside it.
    pub(crate) fn new(dir: &Path) -> Disk {
        let state = dir.with_extension("disk");
        let mut open = OpenOptions::new();
        let words = open.read(true).write(true).create(true).truncate(true).open(&state);
        let words = words.expect("a state file");
        words.set_len(4096).expect("room for the state");
        let disk = Disk { dir: dir.to_path_buf(), state, words };
        disk.write(0, MAGIC);
        disk.unlimited();
        disk
    }

    /// Has the process that `command` starts run on this disk.
    pub(crate) fn under<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("LD_PRELOAD", library())
            .env("CONSIGN_SHIM_DIR", &self.dir)
            .env("CONSIGN_SHIM_STATE", &self.state)
    }

    /// Files may take `bytes` more than they do now.
    pub(crate) fn fill_up_to(&self, bytes: u64) {
        self.write(STALE, 1);
        self.set(Word::Capacity, taken(&self.dir) + bytes);
    }

    /// There is room again.
    pub(crate) fn unlimited(&self) {
        self.set(Word::Capacity, u64::MAX);
    }

    pub(crate) fn set(&self, word: Word, value: u64) {
        self.write(word as u64, value);
    }

    pub(crate) fn get(&self, word: Word) -> u64 {
        let mut bytes = [0; 8];
        self.words.read_exact_at(&mut bytes, 8 * word as u64).expect("the state is whole");
        u64::from_le_bytes(bytes)
    }

    fn write(&self, word: u64, value: u64) {
        self.words.write_all_at(&value.to_le_bytes(), 8 * word).expect("the state is writable");
    }
}

/// Bytes that the files of a folder and of those below it take.
fn taken(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => taken(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("full_disk.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/full_disk.c");
        let built = Command::new("cc")
            .args([
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
                "-Wl,-z,initfirst",
                "-o",
            ])
            .args([&path, &source])
            .output()
            .expect("a C compiler named cc");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        (folder, path)
    });
    path
}

mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Output;

    use super::*;

    struct Rig {
        _folder: TempDir,
        data: PathBuf,
        disk: Disk,
    }

    fn rig() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let disk = Disk::new(&data);
        Rig { _folder: folder, data, disk }
    }

    impl Rig {
        fn run(&self, script: &str) -> Output {
            let mut command = Command::new("sh");
            let script = format!("set -e\n{script}");
            self.disk.under(&mut command).args(["-c", &script]).current_dir(&self.data);
            command.output().expect("a shell")
        }

        fn len(&self, name: &str) -> u64 {
            fs::metadata(self.data.join(name)).map_or(0, |meta| meta.len())
        }
    }

    const DD: &str = "LC_ALL=C exec dd status=none if=/dev/zero bs=4096";

    fn says_full(output: &Output) -> bool {
        String::from_utf8_lossy(&output.stderr).contains("No space left on device")
    }

    #[test]
    fn a_disk_without_a_limit_takes_everything_and_counts() {
        let rig = rig();
        let output = rig.run(&format!("{DD} of=a count=10 conv=fsync"));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(rig.len("a"), 40_960);
        // One file created, ten writes, one sync.
        assert_eq!((rig.disk.get(Word::Calls), rig.disk.get(Word::Syncs)), (12, 1));
        assert_eq!((rig.disk.get(Word::Refused), rig.disk.get(Word::Bytes)), (0, 40_960));
    }

    #[test]
    fn a_full_disk_refuses_what_grows_and_nothing_else() {
        let rig = rig();
        assert!(rig.run(&format!("{DD} of=a count=10")).status.success());
        rig.disk.fill_up_to(5 * 4096);
        let output = rig.run(&format!("{DD} of=b count=10"));
        assert!(says_full(&output), "{output:?}");
        assert_eq!(rig.len("b"), 5 * 4096);
        assert!(rig.disk.get(Word::Refused) > 0);
        // Writing over what is there takes no space; nor does anything outside.
        assert!(rig.run(&format!("{DD} of=a count=10 conv=notrunc,fsync")).status.success());
        assert!(rig.run(&format!("{DD} of=../outside count=10")).status.success());
    }

    #[test]
    fn a_write_that_fits_in_part_is_cut_short() {
        let rig = rig();
        rig.disk.fill_up_to(5 * 4096);
        let output = rig.run("LC_ALL=C exec dd status=none if=/dev/zero bs=65536 count=1 of=a");
        assert!(says_full(&output), "{output:?}");
        assert_eq!(rig.len("a"), 5 * 4096);
    }

    #[test]
    fn removing_a_file_makes_room() {
        let rig = rig();
        assert!(rig.run(&format!("{DD} of=a count=10")).status.success());
        rig.disk.fill_up_to(0);
        assert!(says_full(&rig.run(&format!("{DD} of=b count=1"))));
        let output = rig.run(&format!("rm a\n{DD} of=b count=10"));
        assert!(output.status.success(), "{output:?}");
        assert!(says_full(&rig.run(&format!("{DD} of=c count=1"))));
        rig.disk.unlimited();
        assert!(rig.run(&format!("{DD} of=c count=1")).status.success());
    }

    #[test]
    fn space_that_is_asked_for_beforehand_is_refused_too() {
        let rig = rig();
        rig.disk.fill_up_to(4096);
        let output = rig.run("exec fallocate -l 40960 a");
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(rig.len("a"), 0);
        let free = rig.run("exec stat -f -c '%a %S' .");
        assert!(free.status.success(), "{free:?}");
        let text = String::from_utf8(free.stdout).unwrap();
        let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[0] * numbers[1], 4096, "what the file system says is free");
    }

    #[test]
    fn the_process_dies_instead_of_the_chosen_call() {
        let rig = rig();
        // The first call creates the file, so this is the fourth write.
        rig.disk.set(Word::KillAt, 5);
        let output = rig.run(&format!("{DD} of=a count=10"));
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
        assert_eq!(rig.len("a"), 3 * 4096);
        assert_eq!(rig.disk.get(Word::Calls), 5);
    }

    #[test]
    fn the_process_dies_instead_of_the_chosen_sync() {
        let rig = rig();
        rig.disk.set(Word::KillSync, 2);
        let output = rig.run("echo 1 > a; sync a; echo 2 > b; sync b; echo 3 > c");
        assert!(!output.status.success());
        assert_eq!((rig.len("a"), rig.len("b"), rig.len("c")), (2, 2, 0));
    }

    #[test]
    fn a_chosen_sync_fails() {
        let rig = rig();
        rig.disk.set(Word::BreakSync, 1);
        let output = rig.run(&format!("{DD} of=a count=1 conv=fsync"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("Input/output error"), "{text}");
        assert!(rig.run(&format!("{DD} of=a count=1 conv=fsync")).status.success());
    }
}
