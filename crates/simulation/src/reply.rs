//! Replies as a client reads them off the wire. RESP2, and nothing of the server's own code.

use std::fmt;

use crate::value::Value;

/// One reply.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Value),
    /// A missing value.
    Null,
    Array(Vec<Reply>),
    /// What EXEC answers when a watched key has changed.
    NullArray,
}

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply::Simple("OK".to_owned())
    }

    /// A value, or that there is none.
    pub(crate) fn value(value: Option<&Value>) -> Reply {
        value.map_or(Reply::Null, |value| Reply::Bulk(value.clone()))
    }

    /// Whether it is an error that begins with `prefix`.
    pub(crate) fn is_error(&self, prefix: &str) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(prefix))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(out, "+{text}"),
            Reply::Error(text) => write!(out, "-{text}"),
            Reply::Integer(number) => write!(out, ":{number}"),
            Reply::Bulk(value) => write!(out, "{value:?}"),
            Reply::Null => out.write_str("(nil)"),
            Reply::Array(replies) => out.debug_list().entries(replies).finish(),
            Reply::NullArray => out.write_str("(nil array)"),
        }
    }
}

/// Takes one whole reply off the front of `input`; none: it has not arrived whole.
///
/// Errors: these bytes are no reply.
pub(crate) fn take(input: &mut Vec<u8>) -> Result<Option<Reply>, String> {
    let mut at = 0;
    let reply = parse(input, &mut at)?;
    if reply.is_some() {
        input.drain(..at);
    }
    Ok(reply)
}

fn parse(input: &[u8], at: &mut usize) -> Result<Option<Reply>, String> {
    let Some(line) = line(input, at) else { return Ok(None) };
    let Some((&kind, rest)) = line.split_first() else { return Err("an empty line".to_owned()) };
    let text = String::from_utf8_lossy(rest).into_owned();
    let number = || text.parse::<i64>().map_err(|_| format!("not a number: {text}"));
    Ok(Some(match kind {
        b'+' => Reply::Simple(text),
        b'-' => Reply::Error(text),
        b':' => Reply::Integer(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Null,
            Ok(len) => {
                let Some(bytes) = input.get(*at..*at + len + 2) else { return Ok(None) };
                *at += len + 2;
                Reply::Bulk(Value::new(bytes[..len].to_vec()))
            }
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => Reply::NullArray,
            Ok(len) => {
                let mut replies = Vec::new();
                for _ in 0..len {
                    let Some(reply) = parse(input, at)? else { return Ok(None) };
                    replies.push(reply);
                }
                Reply::Array(replies)
            }
        },
        _ => return Err(format!("no reply begins with {:?}", kind as char)),
    }))
}

fn line<'a>(input: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = input.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += end + 2;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_whole_or_not_at_all() {
        let whole = b"*3\r\n$2\r\nab\r\n:-7\r\n*-1\r\n-ERR no\r\n$-1\r\n".to_vec();
        let mut input = Vec::new();
        let mut replies = Vec::new();
        for byte in whole {
            input.push(byte);
            replies.extend(take(&mut input).expect("replies"));
        }
        let array =
            vec![Reply::Bulk(Value::new(b"ab".to_vec())), Reply::Integer(-7), Reply::NullArray];
        assert_eq!(replies, [Reply::Array(array), Reply::Error("ERR no".to_owned()), Reply::Null]);
        assert!(input.is_empty());
        assert!(take(&mut b"?\r\n".to_vec()).is_err());
    }
}
