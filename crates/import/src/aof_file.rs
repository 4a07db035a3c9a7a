//! Commands of an append-only file.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use crate::Importing;
use crate::error::ImportError;
use crate::files::Input;
use crate::link::Request;

/// Bytes of a line: a number, or a remark.
const LINE_BYTES_MAX: u64 = 1 << 10;
/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 1 << 30;
/// Bytes of an argument: Redis takes no longer ones.
const WORD_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a name that is looked at.
const NAME_BYTES_MAX: usize = 64;

impl Importing<'_> {
    /// Sends all commands from a place on.
    pub(crate) fn import_commands(&mut self, begin: u64) -> Result<(), ImportError> {
        let input = self.input;
        let mut file = input.open()?;
        file.seek(SeekFrom::Start(begin)).map_err(|source| input.unreadable(source))?;
        // What a Redis that still runs adds meanwhile is not looked at.
        let file = file.take(input.bytes - begin);
        let mut commands = Commands { input, file: BufReader::new(file), offset: begin };
        // Where the transaction under way begins.
        let mut transaction = None;
        loop {
            let start = commands.offset;
            let command = match commands.next()? {
                Next::Command(command) => command,
                Next::End if transaction.is_none() => break,
                Next::End | Next::Cut => {
                    self.leave_out(transaction.unwrap_or(start), transaction.is_some())?;
                    break;
                }
            };
            let is = |name: &str| command.name.eq_ignore_ascii_case(name.as_bytes());
            if is("MULTI") {
                transaction = Some(start);
            } else if is("EXEC") {
                transaction = None;
            }
            self.link.send((input, start), &command.name, &command.request)?;
            self.sent.commands += 1;
            self.progress.at(commands.offset, self.sent);
        }
        self.link.forget_db();
        Ok(())
    }

    /// The file ends in the midst of a command, or of a transaction, which begins at an offset.
    fn leave_out(&mut self, offset: u64, in_transaction: bool) -> Result<(), ImportError> {
        let what = if in_transaction { "a transaction" } else { "a command" };
        if !self.input.is_last || self.is_strict {
            return Err(self.input.damaged(offset, format!("it ends in the midst of {what}")));
        }
        if in_transaction {
            let discard = Request::of(&[b"DISCARD"]);
            self.link.send((self.input, offset), b"DISCARD", &discard)?;
        }
        let (path, bytes) = (self.input.path.display(), self.input.bytes - offset);
        let text = format!(
            "{path} ends in the midst of {what}: its last {bytes} bytes, from byte {offset} on, are left out"
        );
        (self.warn)(text);
        Ok(())
    }
}

struct Commands<'a, R> {
    input: &'a Input,
    file: R,
    /// Bytes that have been read.
    offset: u64,
}

struct Command {
    /// The first bytes of its name.
    name: Vec<u8>,
    request: Request,
}

enum Next {
    Command(Command),
    End,
    /// The file ends in the midst of a command.
    Cut,
}

/// A line, or a word, that ends too early.
struct CutOff;

impl<R: BufRead> Commands<'_, R> {
    fn next(&mut self) -> Result<Next, ImportError> {
        let head = loop {
            if self.is_at_end()? {
                return Ok(Next::End);
            }
            match self.line()? {
                Err(CutOff) => return Ok(Next::Cut),
                // What Redis notes between commands, such as the time.
                Ok(line) if line.starts_with(b"#") => {}
                Ok(line) => break line,
            }
        };
        let words = self.number(&head, b'*')?;
        if words == 0 {
            return Err(self.wrong("a command without a name"));
        }
        let (mut name, mut request) = (Vec::new(), Request::default());
        for number in 0..words {
            let Ok(line) = self.line()? else { return Ok(Next::Cut) };
            let len = self.number(&line, b'$')?;
            if len > WORD_BYTES_MAX || request.bytes() as u64 + len > COMMAND_BYTES_MAX as u64 {
                return Err(self.wrong("a command that is too long"));
            }
            let read = request.read_word(len, &mut self.file);
            if !read.map_err(|source| self.input.unreadable(source))? {
                return Ok(Next::Cut);
            }
            if number == 0 {
                let word = request.last_word(len as usize);
                name = word[..word.len().min(NAME_BYTES_MAX)].to_vec();
            }
            self.offset += len;
            match self.line()? {
                Err(CutOff) => return Ok(Next::Cut),
                Ok(end) if end.is_empty() => {}
                Ok(_) => return Err(self.wrong("an argument that is longer than it says")),
            }
        }
        Ok(Next::Command(Command { name, request }))
    }

    fn is_at_end(&mut self) -> Result<bool, ImportError> {
        let buffer = self.file.fill_buf().map_err(|source| self.input.unreadable(source))?;
        Ok(buffer.is_empty())
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<Result<Vec<u8>, CutOff>, ImportError> {
        let mut line = Vec::new();
        let read = (&mut self.file).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|source| self.input.unreadable(source))?;
        if line.last() != Some(&b'\n') {
            return match line.len() as u64 == LINE_BYTES_MAX {
                true => Err(self.wrong("a line that does not end")),
                false => Ok(Err(CutOff)),
            };
        }
        self.offset += line.len() as u64;
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Ok(line))
    }

    /// The number in a line that is to begin with a byte.
    fn number(&self, line: &[u8], begins: u8) -> Result<u64, ImportError> {
        let digits = line.strip_prefix(&[begins]);
        digits.and_then(value::number::parse_u64).ok_or_else(|| {
            let (shown, begins) = (line[..line.len().min(32)].escape_ascii(), char::from(begins));
            self.wrong(&format!("'{shown}' in place of {begins} and a number"))
        })
    }

    /// Something is wrong behind what has been read last.
    fn wrong(&self, what: &str) -> ImportError {
        self.input.damaged(self.offset, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sent;
    use crate::link::Destination;
    use crate::progress::Progress;

    struct Nowhere;

    impl Destination for Nowhere {
        fn send(&mut self, _: (&Input, u64), _: &[u8], _: &Request) -> Result<(), ImportError> {
            Ok(())
        }

        fn select(&mut self, _: &Input, _: u64, _: u64) -> Result<(), ImportError> {
            Ok(())
        }

        fn forget_db(&mut self) {}
    }

    #[test]
    fn what_is_added_meanwhile_is_not_looked_at() {
        let path = std::env::temp_dir().join(format!("kelvin-import-log-{}", std::process::id()));
        std::fs::write(&path, "*1\r\n$4\r\nPING\r\n".repeat(3)).expect("a file");
        let input = Input { path: path.clone(), bytes: 17, is_last: true };
        let (mut sent, mut told) = (Sent::default(), Vec::new());
        let mut importing = Importing {
            input: &input,
            link: &mut Nowhere,
            progress: &mut Progress::new(input.bytes, true),
            warn: &mut |text| told.push(text),
            sent: &mut sent,
            replaces: false,
            is_strict: false,
        };
        let imported = importing.import_commands(0);
        std::fs::remove_file(path).expect("it is there");
        assert!(imported.is_ok());
        assert_eq!(sent.commands, 1);
        assert!(told.len() == 1 && told[0].contains("last 3 bytes, from byte 14 on"), "{told:?}");
    }

    #[test]
    fn commands_are_named_wherever_what_is_read_at_once_ends() {
        let log = b"*1\r\n$5\r\nMULTI\r\n#TS:1\r\n*3\r\n$3\r\nset\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nEXEC\r\n";
        let input = Input { path: "log".into(), bytes: log.len() as u64, is_last: true };
        for capacity in 1..=log.len() {
            let file = BufReader::with_capacity(capacity, &log[..]);
            let mut commands = Commands { input: &input, file, offset: 0 };
            let mut names = Vec::new();
            while let Next::Command(command) = commands.next().expect("it is well-formed") {
                names.push(command.name);
            }
            assert_eq!(names, [&b"MULTI"[..], b"set", b"EXEC"], "{capacity}");
        }
    }
}
