//! A file that is being downloaded: its bytes, and behind them how much of each piece is there.
//!
//! The table is written after the bytes that it counts, so a process that is killed loses no more than the last read of
//! each connection. After the loss of power the table may count bytes that are not on the disk; the sum of the whole
//! file then differs, and the download starts again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

const MAGIC: [u8; 16] = *b"gristmill pieces";

/// A partial file and what is there of it.
pub(crate) struct Partial {
    path: PathBuf,
    size: u64,
    piece: u64,
    /// Bytes from the start of each piece that are there.
    done: Vec<AtomicU64>,
    table: Mutex<File>,
}

impl Partial {
    /// Opens a partial file, or makes one.
    pub(crate) fn open(path: &Path, size: u64, piece: u64) -> Result<Partial, Error> {
        let failed = Error::io(path);
        let open = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = open.map_err(failed)?;
        let pieces = size.div_ceil(piece);
        let done = match read_table(&mut file, size, piece, pieces) {
            Some(done) => done,
            None => {
                write_table(&mut file, size, piece, pieces).map_err(Error::io(path))?;
                vec![0; usize::try_from(pieces).unwrap_or(usize::MAX)]
            }
        };
        let done = done.into_iter().map(AtomicU64::new).collect();
        Ok(Partial { path: path.to_owned(), size, piece, done, table: Mutex::new(file) })
    }

    /// Bytes that are there.
    pub(crate) fn had(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum()
    }

    /// The pieces that are not whole, in order.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.done.len()).filter(|&piece| !self.rest(piece).is_empty()).collect()
    }

    /// The bytes of a piece that are missing.
    pub(crate) fn rest(&self, piece: usize) -> Range<u64> {
        let start = piece as u64 * self.piece;
        start + self.done[piece].load(Ordering::Relaxed)..(start + self.piece).min(self.size)
    }

    /// A place to write bytes, for one thread.
    pub(crate) fn writer(&self) -> Result<Writer<'_>, Error> {
        let file = File::options().write(true).open(&self.path).map_err(Error::io(&self.path))?;
        Ok(Writer { partial: self, file })
    }

    /// Cuts the table off; the file then has the bytes alone.
    pub(crate) fn finish(self) -> Result<File, Error> {
        let file = self.table.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.set_len(self.size).and_then(|()| file.sync_all()).map_err(Error::io(&self.path))?;
        Ok(file)
    }
}

pub(crate) struct Writer<'a> {
    partial: &'a Partial,
    file: File,
}

impl Writer<'_> {
    /// Writes bytes of the file that start at `at`, as far as they are missing. Returns how many were.
    pub(crate) fn write(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<u64, Error> {
        let mut new = 0;
        while !bytes.is_empty() && at < self.partial.size {
            let piece = (at / self.partial.piece) as usize;
            let rest = self.partial.rest(piece);
            let end = (piece as u64 * self.partial.piece + self.partial.piece).min(self.partial.size);
            let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX)));
            // A hole before these bytes would be counted as there.
            let skip = rest.start.saturating_sub(at);
            if at <= rest.start && skip < now.len() as u64 {
                let missing = &now[skip as usize..];
                self.put(piece, rest.start, missing)?;
                new += missing.len() as u64;
            }
            at += now.len() as u64;
            bytes = later;
        }
        Ok(new)
    }

    fn put(&mut self, piece: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let partial = self.partial;
        let failed = || Error::io(&partial.path);
        self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes)).map_err(failed())?;
        let done = at + bytes.len() as u64 - piece as u64 * partial.piece;
        partial.done[piece].store(done, Ordering::Relaxed);
        let slot = partial.size + (MAGIC.len() + 8 + 8 * piece) as u64;
        let write = self.file.seek(SeekFrom::Start(slot)).and_then(|_| self.file.write_all(&done.to_le_bytes()));
        write.map_err(failed())
    }
}

/// The table behind the bytes, if there is one of this size.
fn read_table(file: &mut File, size: u64, piece: u64, pieces: u64) -> Option<Vec<u64>> {
    if file.metadata().ok()?.len() != size + MAGIC.len() as u64 + 8 + 8 * pieces {
        return None;
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(size)).ok()?;
    file.read_to_end(&mut bytes).ok()?;
    let (magic, rest) = bytes.split_at_checked(MAGIC.len())?;
    let mut numbers = rest.chunks_exact(8).filter_map(|chunk| Some(u64::from_le_bytes(chunk.try_into().ok()?)));
    if magic != MAGIC || numbers.next() != Some(piece) {
        return None;
    }
    let done: Vec<u64> = numbers.collect();
    let lengths = (0..pieces).map(|number| piece.min(size - number * piece));
    done.iter().zip(lengths).all(|(&done, length)| done <= length).then_some(done)
}

fn write_table(file: &mut File, size: u64, piece: u64, pieces: u64) -> std::io::Result<()> {
    file.set_len(0)?;
    file.set_len(size + MAGIC.len() as u64 + 8 + 8 * pieces)?;
    file.seek(SeekFrom::Start(size))?;
    file.write_all(&MAGIC)?;
    file.write_all(&piece.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Temporary(PathBuf);

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn temporary(name: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("gristmill-partial-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Temporary(path)
    }

    #[test]
    fn bytes_that_are_there_are_known_when_it_is_opened_again() {
        let path = temporary("again");
        let bytes: Vec<u8> = (0..25).collect();
        let partial = Partial::open(&path.0, 25, 10).expect("a new one");
        assert_eq!((partial.had(), partial.missing()), (0, vec![0, 1, 2]));
        let mut writer = partial.writer().expect("a writer");
        assert_eq!(writer.write(10, &bytes[10..14]).expect("written"), 4);
        assert_eq!(writer.write(20, &bytes[20..]).expect("written"), 5);
        // Bytes behind a hole are not counted.
        assert_eq!(writer.write(3, &bytes[3..6]).expect("nothing"), 0);
        drop(writer);
        drop(partial);

        let partial = Partial::open(&path.0, 25, 10).expect("the same");
        assert_eq!((partial.had(), partial.missing(), partial.rest(1)), (9, vec![0, 1], 14..20));
        // A complete stream writes the missing bytes, and ignores bytes after the end.
        let stream: Vec<u8> = bytes.iter().copied().chain([99; 9]).collect();
        assert_eq!(partial.writer().expect("a writer").write(0, &stream).expect("written"), 16);
        assert!(partial.missing().is_empty());
        partial.finish().expect("it is whole");
        assert_eq!(std::fs::read(&path.0).expect("the file"), bytes);
    }

    #[test]
    fn a_table_of_another_file_is_not_believed() {
        let path = temporary("other");
        let write = |size, piece| {
            let partial = Partial::open(&path.0, size, piece).expect("a file");
            partial.writer().expect("a writer").write(0, &[1; 8]).expect("written");
        };
        write(25, 10);
        assert_eq!(Partial::open(&path.0, 25, 5).expect("other pieces").had(), 0);
        write(25, 10);
        assert_eq!(Partial::open(&path.0, 24, 10).expect("another size").had(), 0);
        write(25, 10);
        let mut bytes = std::fs::read(&path.0).expect("the file");
        bytes[25 + 24] = 11;
        std::fs::write(&path.0, &bytes).expect("a table of more than a piece");
        assert_eq!(Partial::open(&path.0, 25, 10).expect("a wrong table").had(), 0);
    }
}
