//! Keys of an RDB file.

use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

use rdb::file::{FileError, FileReader, KeyPart, Part};
use rdb::{Error, payload, read_object};

use crate::Importing;
use crate::error::ImportError;
use crate::link::Request;
use crate::pieces::{Maker, TooMuch};
use crate::recorded::Recorded;

/// Strings of a file: Redis has none that are longer.
const STRING_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a value that is sent as one; others go piece by piece.
const WHOLE_BYTES_MAX: usize = 256 << 10;

impl Importing<'_> {
    /// Sends all keys. Returns where the file goes on behind them.
    pub(crate) fn import_keys(&mut self) -> Result<u64, ImportError> {
        let input = self.input;
        let damaged = |error: FileError| match error.io {
            Some(source) => input.unreadable(source),
            None => input.damaged(error.offset, error.error.to_string()),
        };
        let mut reader = FileReader::new(input.open()?, STRING_BYTES_MAX).map_err(damaged)?;
        loop {
            match reader.next_part().map_err(damaged)? {
                Part::End => return Ok(reader.offset()),
                Part::Key(part) => self.import_key(&mut reader, &part)?,
                Part::Skipped(what) => {
                    let (path, offset) = (input.path.display(), reader.offset());
                    let what = format!("{what:?}").to_lowercase();
                    let text = format!("{path} at byte {offset}: passed over: {what}");
                    (self.warn)(text);
                }
                Part::Aux { .. } | Part::Size { .. } => {}
                Part::Own(_) => unreachable!("no type is taken as its own"),
            }
            self.progress.at(reader.offset(), self.sent);
        }
    }

    fn import_key(
        &mut self,
        reader: &mut FileReader<File>,
        part: &KeyPart,
    ) -> Result<(), ImportError> {
        let (input, offset, version) = (self.input, reader.offset(), reader.version());
        let has_expired = part.expire_at_ms > 0 && part.expire_at_ms <= unix_ms();
        if !has_expired {
            self.link.select(input, offset, part.db)?;
        }
        let mut recorded = Recorded::new(&mut *reader, part.object_type.byte(), WHOLE_BYTES_MAX);
        let mut maker = Maker::new(&part.key);
        let (mut in_pieces, mut failure) = (false, None);
        let read = read_object(&mut recorded, part.object_type, &mut |item| {
            if has_expired {
                return Ok(());
            }
            let added = maker.add(&item).map_err(|TooMuch(what)| input.damaged(offset, what));
            let sent = added.and_then(|()| match in_pieces || maker.bytes() > WHOLE_BYTES_MAX {
                true => self.send_pieces((part, offset), &mut maker, &mut in_pieces),
                false => Ok(()),
            });
            sent.map_err(|error| {
                failure = Some(error);
                Error::Stopped
            })
        });
        let whole = recorded.bytes;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if read == Err(Error::Empty) {
            let (path, key) = (input.path.display(), part.key.escape_ascii());
            let text = format!(
                "{path} at byte {offset}: passed over: an empty key, {key} of database {}",
                part.db
            );
            (self.warn)(text);
            return Ok(());
        }
        if let Err(error) = read {
            let FileError { offset, error, io } = reader.error(error);
            return Err(match io {
                Some(source) => input.unreadable(source),
                None => {
                    let key = part.key.escape_ascii();
                    input.damaged(offset, format!("the key {key} of database {}: {error}", part.db))
                }
            });
        }
        if has_expired {
            self.sent.expired += 1;
            return Ok(());
        }
        match whole.filter(|_| !in_pieces) {
            Some(whole) => self.send_whole((part, offset), whole, version)?,
            None => {
                maker.finish();
                self.send_pieces((part, offset), &mut maker, &mut in_pieces)?;
                if part.expire_at_ms > 0 {
                    let mut request = Request::of(&[b"PEXPIREAT", &part.key]);
                    request.push_number(part.expire_at_ms);
                    self.link.send((input, offset), &part.key, &request)?;
                }
            }
        }
        self.sent.keys += 1;
        Ok(())
    }

    /// Sends what there is of a value that is sent piece by piece.
    fn send_pieces(
        &mut self,
        (part, offset): (&KeyPart, u64),
        maker: &mut Maker<'_>,
        has_begun: &mut bool,
    ) -> Result<(), ImportError> {
        if !std::mem::replace(has_begun, true) && self.replaces {
            let delete = Request::of(&[b"DEL", &part.key]);
            self.link.send((self.input, offset), &part.key, &delete)?;
        }
        for request in maker.take() {
            self.link.send((self.input, offset), &part.key, &request)?;
        }
        Ok(())
    }

    fn send_whole(
        &mut self,
        (part, offset): (&KeyPart, u64),
        mut object: Vec<u8>,
        version: u16,
    ) -> Result<(), ImportError> {
        payload::finish(&mut object, 0, version);
        let mut request = Request::of(&[b"RESTORE", &part.key]);
        request.push_number(part.expire_at_ms);
        request.push(&object);
        request.push(b"ABSTTL");
        if self.replaces {
            request.push(b"REPLACE");
        }
        if let Some(frequency) = part.frequency {
            request.push(b"FREQ");
            request.push_number(frequency.into());
        } else if let Some(seconds) = part.idle_seconds {
            request.push(b"IDLETIME");
            request.push_number(seconds);
        }
        self.link.send((self.input, offset), &part.key, &request)
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
