//! The file of a snapshot: written by a thread of its own under another name, so that nobody who holds a slot waits
//! for the drive but when much is on its way, and put in place once all of it is there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use rustix::fs::Advice;
use tier::{Background, Tier};

use crate::limits::{SAVED_PIPE_BYTES_MAX, SAVED_PIPE_BYTES_MIN, SAVED_PIPE_SHIFT};
use crate::state::files::SavedFile;
use crate::state::packed::Packer;
use crate::state::server::Server;

/// Bytes of a piece.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// The part of the pieces that may be on their way beyond which the walk waits, so that there is room for those who
/// hold slots: a quarter.
const MANY_SHIFT: u32 = 2;
/// Bytes that are written between two times that the kernel is told to begin with them: what others read from the same
/// drive waits for no more at once.
const WRITEBACK_BYTES: u64 = 1 << 20;
/// Bytes that are written between two syncs, so that the one at the end does not wait for all. A worker that saves a value
/// may wait for one: most of what it waits for is on the drive by then.
const SYNC_BYTES: u64 = 32 << 20;

/// What is known of the thread that writes.
struct Progress {
    /// Pieces on their way.
    pending: AtomicUsize,
    /// Beyond so many the walk waits.
    many: usize,
    /// Whether the file is packed: said before the first piece.
    packs: AtomicBool,
    /// It writes no more: what is on its way stays there.
    has_ended: AtomicBool,
}

impl Progress {
    fn is_behind(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed) && self.pending.load(Ordering::Relaxed) > self.many
    }
}

/// The thread has ended when this is dropped, however that came.
struct Ends(Arc<Progress>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Bytes on their way, which count in the budget.
struct Piece {
    bytes: Vec<u8>,
    _memory: Background,
}

/// The end of a pipe to the thread that writes.
pub(crate) struct FilePipe {
    tier: Arc<Tier>,
    pieces: SyncSender<Piece>,
    progress: Arc<Progress>,
}

impl FilePipe {
    /// Has the file packed. Nothing was written yet.
    pub(crate) fn pack(&self) {
        self.progress.packs.store(true, Ordering::Relaxed);
    }
}

impl Write for FilePipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A large value comes in one: no more of it is copied than there is to be on its way.
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        self.progress.pending.fetch_add(1, Ordering::Relaxed);
        // The thread says why when it is asked for the file.
        let memory = Background::small(&self.tier, bytes.len() as u64);
        let piece = Piece { bytes: bytes.to_vec(), _memory: memory };
        let is_sent = send(&self.pieces, piece);
        is_sent.then_some(()).ok_or_else(|| io::Error::other("the file cannot be written"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file behind it.
pub(crate) struct SnapshotFile<'a> {
    server: &'a Server,
    dir: PathBuf,
    temporary: PathBuf,
    /// It comes back when the thread has ended.
    written: Receiver<io::Result<SavedFile>>,
    progress: Arc<Progress>,
}

impl SnapshotFile<'_> {
    /// Makes a file in a directory; `name` tells it from others. Errors: it cannot be made.
    pub(crate) fn create<'a>(
        server: &'a Server,
        dir: &Path,
        name: &str,
    ) -> io::Result<(SnapshotFile<'a>, FilePipe)> {
        let dir = dir.to_path_buf();
        let temporary = dir.join(format!("temp-{}{name}.rdb", std::process::id()));
        let file = server.files.create(&temporary)?;
        let (pipe, received) = pipe(&server.tier);
        let progress = pipe.progress.clone();
        let ends = Ends(progress.clone());
        let (sender, written) = sync_channel(1);
        let write = move || {
            let result = write_all(file, &received, &ends);
            // Who does not wait for it has no use for it.
            let _ = sender.send(result);
        };
        server.threads.start("snapshot", Box::new(write))?;
        Ok((SnapshotFile { server, dir, temporary, written, progress }, pipe))
    }

    /// Waits until all is written.
    fn written(&self) -> io::Result<SavedFile> {
        receive(&self.written).ok_or_else(|| io::Error::other("the writer has ended"))?
    }

    /// Whether so much is on its way that the walk is to wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.progress.is_behind()
    }

    /// Puts the file, which has all its bytes, in place of what has its name. When this returns it is on the drive. Returns its
    /// bytes, which are fewer than were written to it where it is packed.
    ///
    /// Errors: it cannot; what had the name has it still.
    pub(crate) fn put(self, name: &Path) -> io::Result<u64> {
        let files = &self.server.files;
        let put = |file: SavedFile| {
            file.sync(true)?;
            let bytes = file.size()?;
            files.put(&self.dir, &self.temporary, &self.dir.join(name)).map(|()| bytes)
        };
        let result = self.written().and_then(put);
        if result.is_err() {
            self.remove_temporary();
        }
        result
    }

    /// Removes it, once it has all its bytes, and returns these. Errors: they could not be written.
    pub(crate) fn into_bytes(self) -> io::Result<SavedFile> {
        let result = self.written();
        self.remove_temporary();
        let mut file = result?;
        file.rewind()?;
        Ok(file)
    }

    /// Removes it. Returns why it could not be written, if that is why.
    pub(crate) fn remove(self) -> Option<io::Error> {
        let result = receive(&self.written);
        self.remove_temporary();
        result.and_then(Result::err)
    }

    fn remove_temporary(&self) {
        if let Err(error) = self.server.files.remove(&self.temporary) {
            let path = self.temporary.display();
            tracing::debug!(%error, %path, "the unfinished file was gone already");
        }
    }
}

/// Sends a piece, and waits for room on the way. False: nobody takes it.
fn send(pieces: &SyncSender<Piece>, piece: Piece) -> bool {
    let mut piece = piece;
    loop {
        piece = match pieces.try_send(piece) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(piece)) => piece,
        };
        if !stdx::waiting::let_others_run() {
            return pieces.send(piece).is_ok();
        }
    }
}

/// Waits for what comes next. None: nothing does.
fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    loop {
        match receiver.try_recv() {
            Ok(received) => return Some(received),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        if !stdx::waiting::let_others_run() {
            return receiver.recv().ok();
        }
    }
}

fn pipe(tier: &Arc<Tier>) -> (FilePipe, Receiver<Piece>) {
    let pieces_max = pieces_max(tier.budget.max_bytes());
    let (pieces, received) = sync_channel(pieces_max);
    let progress = Progress {
        pending: AtomicUsize::new(0),
        many: pieces_max >> MANY_SHIFT,
        packs: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
    };
    (FilePipe { tier: tier.clone(), pieces, progress: Arc::new(progress) }, received)
}

/// Pieces that may be on their way, with such a `maxmemory`.
fn pieces_max(maxmemory: u64) -> usize {
    let bytes = match maxmemory {
        0 => SAVED_PIPE_BYTES_MAX,
        bytes => (bytes >> SAVED_PIPE_SHIFT).clamp(SAVED_PIPE_BYTES_MIN, SAVED_PIPE_BYTES_MAX),
    };
    bytes as usize / PIECE_BYTES_MAX
}

/// A file on its way to the drive.
struct Written {
    file: SavedFile,
    bytes: u64,
    /// Up to where the kernel was told to begin.
    begun: u64,
    synced: u64,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Before others are taken: those that were are not to be written again for a sync that failed.
        if self.bytes - self.synced >= SYNC_BYTES {
            self.file.sync(false)?;
            self.synced = self.bytes;
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        if self.bytes - self.begun >= WRITEBACK_BYTES {
            // Pages that are not wanted any more are written without a wait.
            self.file.advise(self.begun, self.bytes - self.begun, Advice::DontNeed);
            self.begun = self.bytes;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes what comes, until nothing more can.
fn write_all(
    file: SavedFile,
    pieces: &Receiver<Piece>,
    Ends(progress): &Ends,
) -> io::Result<SavedFile> {
    let mut next = receive(pieces);
    let written = Written { file, bytes: 0, begun: 0, synced: 0 };
    let mut packer = Packer::new(written, progress.packs.load(Ordering::Relaxed))?;
    while let Some(piece) = next {
        packer.write_all(&piece.bytes)?;
        progress.pending.fetch_sub(1, Ordering::Relaxed);
        // It counts as long as it is there.
        drop(piece);
        next = receive(pieces);
    }
    packer.finish().map(|written| written.file)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;

    use rdb::file::FileWriter;
    use rdb::payload::VERSION_7_0;

    use super::*;
    use crate::state::client_memory::tests::server;

    const MIB: u64 = 1 << 20;

    /// A file that takes nothing.
    pub(crate) fn closed_file(tier: &Arc<Tier>) -> FileWriter<FilePipe> {
        FileWriter::new(pipe(tier).0, VERSION_7_0, false)
    }

    #[test]
    fn what_is_on_its_way_follows_maxmemory_and_counts() {
        let bytes = |maxmemory| pieces_max(maxmemory) as u64 * PIECE_BYTES_MAX as u64;
        assert_eq!([bytes(1), bytes(64 * MIB)], [SAVED_PIPE_BYTES_MIN; 2]);
        assert_eq!([bytes(256 * MIB), bytes(64 << 30), bytes(0)], [2 * MIB, 8 * MIB, 8 * MIB]);
        let tier = server().tier;
        let before = tier.budget.background_bytes();
        let (mut pipe, received) = pipe(&tier);
        pipe.write_all(&[1; 1000]).expect("there is room");
        assert_eq!(tier.budget.background_bytes() - before, 1000);
        drop(received.recv().expect("a piece"));
        assert_eq!(tier.budget.background_bytes(), before);
    }

    #[test]
    fn nobody_waits_for_a_file_that_cannot_be_written() {
        let (mut pipe, received) = pipe(&server().tier);
        for _ in 0..=pipe.progress.many {
            pipe.write_all(b"piece").expect("there is room");
        }
        assert!(pipe.progress.is_behind());
        let file = SavedFile::System(File::open("/dev/null").expect("a file"));
        let ends = Ends(pipe.progress.clone());
        let write = move || write_all(file, &received, &ends);
        let thread = std::thread::spawn(write);
        let result = thread.join().expect("it returns");
        assert!(result.is_err(), "it is open for reading alone");
        assert!(!pipe.progress.is_behind());
        pipe.write_all(b"piece").expect_err("nobody takes it");
        assert!(!pipe.progress.is_behind());
    }

    #[test]
    fn a_large_value_goes_in_pieces() {
        let (mut pipe, received) = pipe(&server().tier);
        let value = vec![b'x'; 2 * PIECE_BYTES_MAX + 1];
        pipe.write_all(&value).expect("there is room");
        drop(pipe);
        let lens: Vec<usize> = received.iter().map(|piece| piece.bytes.len()).collect();
        assert_eq!(lens, [PIECE_BYTES_MAX, PIECE_BYTES_MAX, 1]);
    }
}
