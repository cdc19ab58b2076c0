//! What arrives of a shard, on its way to the shelf. A large one is hashed and written on a thread of its own: the
//! wire, which has TLS to undo, waits for neither.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::shelf::Partial;

/// Pieces that may wait for the disk.
const PIECES: usize = 4;

/// A shard that is being filled.
pub(super) enum Filling {
    /// By whoever reads the wire.
    Here(Box<Partial>),
    /// By a thread.
    Aside(Keeper),
}

impl Filling {
    /// Begins; a large shard is given a thread.
    pub(super) fn begin(partial: Partial) -> io::Result<Filling> {
        if partial.is_large() {
            return Ok(Filling::Aside(Keeper::start(partial)?));
        }
        Ok(Filling::Here(Box::new(partial)))
    }

    /// Bytes that are there or on their way to the disk.
    pub(super) fn size(&self) -> u64 {
        match self {
            Filling::Here(partial) => partial.size(),
            Filling::Aside(keeper) => keeper.size,
        }
    }

    /// The next bytes. An error may be of bytes that came before; [`Filling::end`] says which it was.
    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Filling::Here(partial) => partial.write(data),
            Filling::Aside(keeper) => keeper.write(data),
        }
    }

    /// What is there once nothing is on its way any more, and the first thing that went wrong aside.
    pub(super) fn end(self) -> (Partial, io::Result<()>) {
        match self {
            Filling::Here(partial) => (*partial, Ok(())),
            Filling::Aside(keeper) => keeper.end(),
        }
    }
}

/// The thread, and what is between it and the wire: pieces that are filled, and those that are free again.
pub(super) struct Keeper {
    filled: SyncSender<Vec<u8>>,
    free: Receiver<Vec<u8>>,
    made: usize,
    size: u64,
    thread: JoinHandle<(Partial, io::Result<()>)>,
}

impl Keeper {
    fn start(partial: Partial) -> io::Result<Keeper> {
        let size = partial.size();
        let (filled, pieces) = sync_channel(PIECES);
        let (done, free) = channel();
        let thread = Builder::new().name("keep".into());
        let thread = thread.spawn(move || keep(partial, &pieces, &done))?;
        Ok(Keeper { filled, free, made: 0, size, thread })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let ended = || io::Error::other("nothing more can be written");
        let free = self.free.try_recv().ok();
        let mut piece = match free {
            Some(piece) => piece,
            None if self.made < PIECES => {
                self.made += 1;
                Vec::new()
            }
            None => self.free.recv().map_err(|_| ended())?,
        };
        piece.clear();
        piece.extend_from_slice(data);
        self.filled.send(piece).map_err(|_| ended())?;
        self.size += data.len() as u64;
        Ok(())
    }

    fn end(self) -> (Partial, io::Result<()>) {
        drop(self.filled);
        match self.thread.join() {
            Ok(kept) => kept,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn keep(
    mut partial: Partial,
    pieces: &Receiver<Vec<u8>>,
    done: &Sender<Vec<u8>>,
) -> (Partial, io::Result<()>) {
    for piece in pieces {
        if let Err(why) = partial.write(&piece) {
            return (partial, Err(why));
        }
        // Where nobody waits for it, it was the last.
        let _ = done.send(piece);
    }
    (partial, Ok(()))
}
