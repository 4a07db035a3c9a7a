//! Snapshot files that are packed, in the format of Zstandard (`zstd -d` unpacks them): references are short, many, and much
//! alike, and take a third as many bytes so. Builds before packed them with LZ4, which is read as well.

use std::io::{self, BufReader, Chain, Cursor, Read, Write};

use lz4_flex::frame::FrameDecoder;
use zstd::stream::{read::Decoder, write::Encoder};

/// What a packed file begins with.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const MAGIC_LZ4: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

/// Takes 2 MB while a file is written. (1,000,000 references and 10 MB of names: 9.5 MB; level 3 9.4, LZ4 14.3.)
const LEVEL: i32 = 1;
/// Files that want more memory to be read are refused: 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// Writes bytes as they are, or packed.
pub(crate) enum Packer<W: Write> {
    Plain(W),
    Packed(Box<Encoder<'static, W>>),
}

impl<W: Write> Packer<W> {
    /// Errors: there is no memory for it.
    pub(crate) fn new(writer: W, packs: bool) -> io::Result<Packer<W>> {
        // Without sums: a snapshot has its own.
        Ok(match packs {
            true => Packer::Packed(Box::new(Encoder::new(writer, LEVEL)?)),
            false => Packer::Plain(writer),
        })
    }

    /// Ends what was written. Errors: it cannot be written.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Packer::Plain(writer) => Ok(writer),
            Packer::Packed(encoder) => encoder.finish(),
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
    decoder: Format<R>,
    /// Why nothing more can be read: a decoder would go on behind a block that it cannot unpack.
    failure: Option<Failure>,
}

enum Format<R: Read> {
    Zstd(Decoder<'static, BufReader<Whole<R>>>),
    Lz4(FrameDecoder<Whole<R>>),
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
    /// Errors: the first bytes cannot be read; there is no memory for it.
    pub(crate) fn new(mut file: R) -> io::Result<Unpacker<R>> {
        let mut head = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        let (is_packed, is_lz4) = (head == MAGIC, head == MAGIC_LZ4);
        let whole = Cursor::new(head).chain(file);
        let decoder = if is_packed {
            let mut decoder = Decoder::new(whole)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Format::Zstd(decoder)
        } else if is_lz4 {
            Format::Lz4(FrameDecoder::new(whole))
        } else {
            return Ok(Unpacker::Plain(whole));
        };
        Ok(Unpacker::Packed(Box::new(Packed { decoder, failure: None })))
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
        let read = match &mut self.decoder {
            Format::Zstd(decoder) => decoder.read(buffer),
            Format::Lz4(decoder) => decoder.read(buffer),
        };
        read.map_err(|error| {
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
        let mut packer = Packer::new(Vec::new(), packs).expect("there is memory");
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

    #[test]
    fn nothing_is_read_behind_a_block_that_cannot_be_unpacked() {
        let file = packed(&long_text(), true);
        let mut failed = 0;
        for at in (4..file.len()).step_by(file.len() / 50) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x41;
            let Ok(mut unpacker) = Unpacker::new(&damaged[..]) else { continue };
            let Err(first) = unpacker.read_to_end(&mut Vec::new()) else { continue };
            failed += 1;
            for _ in 0..3 {
                let error = unpacker.read(&mut [0; 100]).expect_err("it says so again");
                assert_eq!((error.to_string(), error.raw_os_error()), (first.to_string(), None));
            }
            assert!(first.to_string().starts_with("it cannot be unpacked: "), "{first}");
        }
        assert!(failed > 5, "{failed}");
    }

    #[test]
    fn what_builds_before_have_packed_is_read() {
        let text = long_text();
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&text).expect("a buffer");
        let file = encoder.finish().expect("a buffer");
        assert_eq!(unpacked(&file).expect("it is whole"), text);
        assert!(unpacked(&file[..file.len() / 2]).is_err());
    }

    #[test]
    fn a_window_larger_than_any_that_is_written_is_refused() {
        let mut encoder = Encoder::new(Vec::new(), LEVEL).expect("there is memory");
        encoder.window_log(WINDOW_LOG_MAX + 1).expect("a window");
        encoder.write_all(&long_text()).expect("a buffer");
        let error = unpacked(&encoder.finish().expect("a buffer")).expect_err("it is too large");
        assert!(error.to_string().starts_with("it cannot be unpacked: "), "{error}");
    }
}
