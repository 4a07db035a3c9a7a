//! Snapshot files that are packed, in the frame format of LZ4 (`lz4 -d` unpacks them): references to flash are short, many, and
//! much alike, and are half as long so.

use std::io::{self, Chain, Cursor, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

/// What a packed file begins with.
const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

/// Writes bytes as they are, or packed.
pub(crate) enum Packer<W: Write> {
    Plain(W),
    Packed(Box<FrameEncoder<W>>),
}

impl<W: Write> Packer<W> {
    pub(crate) fn new(writer: W, packs: bool) -> Packer<W> {
        // Without sums: a snapshot has its own.
        let frame =
            || FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Linked);
        match packs {
            true => Packer::Packed(Box::new(FrameEncoder::with_frame_info(frame(), writer))),
            false => Packer::Plain(writer),
        }
    }

    /// Ends what was written. Errors: it cannot be written.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Packer::Plain(writer) => Ok(writer),
            Packer::Packed(encoder) => Ok(encoder.finish()?),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packer::Plain(writer) => writer.write(bytes),
            Packer::Packed(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packer::Plain(writer) => writer.flush(),
            Packer::Packed(encoder) => encoder.flush(),
        }
    }
}

/// Reads what was written, packed or not.
pub(crate) enum Unpacker<R: Read> {
    Plain(Whole<R>),
    Packed(Box<Packed<R>>),
}

/// A file, with its first bytes that were read to tell what it is.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A packed file.
pub(crate) struct Packed<R: Read> {
    decoder: FrameDecoder<Whole<R>>,
    /// Why nothing more can be read: the decoder would go on behind a block that it cannot unpack.
    failure: Option<Failure>,
}

#[derive(Clone)]
enum Failure {
    /// The system's error.
    System(i32),
    /// Damage.
    Damaged(String),
}

impl Failure {
    fn of(error: &io::Error) -> Failure {
        match (error.raw_os_error(), error.kind()) {
            (Some(code), _) => Failure::System(code),
            (None, io::ErrorKind::UnexpectedEof) => {
                Failure::Damaged("it ends too early".to_owned())
            }
            (None, _) => Failure::Damaged(format!("it cannot be unpacked: {error}")),
        }
    }

    fn error(&self) -> io::Error {
        match self {
            Failure::System(code) => io::Error::from_raw_os_error(*code),
            Failure::Damaged(text) => io::Error::new(io::ErrorKind::InvalidData, text.clone()),
        }
    }
}

impl<R: Read> Unpacker<R> {
    /// Errors: the first bytes cannot be read.
    pub(crate) fn new(mut file: R) -> io::Result<Unpacker<R>> {
        let mut head = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        let is_packed = head == MAGIC;
        let whole = Cursor::new(head).chain(file);
        Ok(match is_packed {
            true => {
                let decoder = FrameDecoder::new(whole);
                Unpacker::Packed(Box::new(Packed { decoder, failure: None }))
            }
            false => Unpacker::Plain(whole),
        })
    }
}

impl<R: Read> Read for Unpacker<R> {
    /// Errors: the file cannot be read, as the system says, or cannot be unpacked, then without an error of the system; from
    /// then on each read says so.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Unpacker::Plain(file) => file.read(buffer),
            Unpacker::Packed(packed) => packed.read(buffer),
        }
    }
}

impl<R: Read> Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = &self.failure {
            return Err(failure.error());
        }
        self.decoder.read(buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let failure = self.failure.insert(Failure::of(&error));
            failure.error()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8], packs: bool) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new(), packs);
        bytes.chunks(7_000).for_each(|some| packer.write_all(some).expect("a buffer"));
        packer.finish().expect("a buffer")
    }

    fn unpacked(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Unpacker::new(file)?.read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn what_is_packed_or_not_comes_back() {
        let text: Vec<u8> = (0..40_000).flat_map(|n| format!("key-{n}").into_bytes()).collect();
        for bytes in [&b""[..], b"x", b"RED", b"REDIS0010", &text] {
            for packs in [false, true] {
                let file = packed(bytes, packs);
                assert_eq!(unpacked(&file).expect("it is whole"), bytes);
            }
        }
        assert!(packed(&text, true).len() < text.len() / 2);
    }

    /// Of many blocks, which repeat others in front of them.
    fn long_text() -> Vec<u8> {
        (0..60_000).flat_map(|n| format!("key-{n}").into_bytes()).collect()
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_and_none_of_the_system() {
        let text = long_text();
        let file = packed(&text, true);
        for at in (0..file.len()).step_by(997) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x41;
            for bytes in [&damaged[..], &file[..at]] {
                match unpacked(bytes) {
                    Ok(read) => assert!(read.len() <= text.len() + (8 << 20)),
                    Err(error) => assert_eq!(error.raw_os_error(), None, "{error}"),
                }
            }
        }
        let cut = unpacked(&file[..file.len() / 2]).expect_err("it is half there").to_string();
        assert_eq!(cut, "it ends too early");
    }

    /// The decoder would take the next block for what follows.
    #[test]
    fn nothing_is_read_behind_a_block_that_cannot_be_unpacked() {
        let file = packed(&long_text(), true);
        // Behind the header, each block has its length in front: the third one's is damaged.
        let mut at = 7;
        for _ in 0..2 {
            at += 4 + u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
        }
        let mut damaged = file.clone();
        damaged[at + 2] = 0x7F;
        let mut unpacker = Unpacker::new(&damaged[..]).expect("it begins as one");
        let mut read = Vec::new();
        let first = unpacker.read_to_end(&mut read).expect_err("it is damaged").to_string();
        assert_eq!(read, long_text()[..2 * 65_536]);
        for _ in 0..3 {
            let error = unpacker.read(&mut [0; 100]).expect_err("it says so again");
            assert_eq!((error.to_string(), error.raw_os_error()), (first.clone(), None));
        }
        assert!(first.starts_with("it cannot be unpacked: "), "{first}");
    }
}
