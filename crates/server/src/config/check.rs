//! What single options take and refuse, with Redis's texts where Redis refuses it too.

use super::file::system_text;

pub(super) const NO_REPLICATION: &str = "replication is not supported";

/// Seconds and changes, pair by pair.
pub(super) fn save(words: &[Vec<u8>]) -> Result<(), String> {
    let number = |word: &Vec<u8>| value::number::parse_u64(word);
    let is_point = |pair: &[Vec<u8>]| {
        pair.len() == 2 && number(&pair[0]).is_some_and(|it| it >= 1) && number(&pair[1]).is_some()
    };
    if !words.chunks(2).all(is_point) {
        return Err("Invalid save parameters".to_owned());
    }
    Ok(())
}

pub(super) fn dbfilename(name: &[u8]) -> Result<Vec<u8>, String> {
    if name.contains(&b'/') {
        return Err("dbfilename can't be a path, just a filename".to_owned());
    }
    Ok(name.to_vec())
}

/// The directory must exist; it is kept as an absolute path.
pub(super) fn dir(path: &[u8]) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let absolute = path.canonicalize().map_err(|error| system_text(&error))?;
    // A directory that can be listed, or the system's reason why not.
    std::fs::read_dir(&absolute).map_err(|error| system_text(&error))?;
    Ok(absolute.into_os_string().into_vec())
}

pub(super) fn appendfilename(name: &[u8]) -> Result<Vec<u8>, String> {
    file_name(name, "appendfilename", "filename")
}

pub(super) fn appenddirname(name: &[u8]) -> Result<Vec<u8>, String> {
    file_name(name, "appenddirname", "dirname")
}

fn file_name(name: &[u8], option: &str, what: &str) -> Result<Vec<u8>, String> {
    if name.is_empty() {
        return Err(format!("{option} can't be empty"));
    }
    if name.contains(&b'/') {
        return Err(format!("{option} can't be a path, just a {what}"));
    }
    Ok(name.to_vec())
}

/// What a template of the process's name may name, and whether it may stand for nothing.
const TITLE_PARTS: [(&[u8], bool); 7] = [
    (b"title", true),
    (b"listen-addr", false),
    (b"server-mode", true),
    (b"port", false),
    (b"tls-port", false),
    (b"unixsocket", false),
    (b"config-file", false),
];

/// A template of the process's name: `{name}` stands for a part of [`TITLE_PARTS`], `{{` for a
/// brace. Something must be left when all parts that may be empty are.
pub(super) fn title_template(text: &[u8]) -> Result<Vec<u8>, String> {
    let invalid = || "template format is invalid or contains unknown variables".to_owned();
    let (mut rest, mut shows_something) = (text, false);
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'{' || rest.first() == Some(&b'{') {
            rest = if first == b'{' { &rest[1..] } else { rest };
            shows_something |= first != b' ';
            continue;
        }
        let end = rest.iter().position(|byte| *byte == b'}').ok_or_else(invalid)?;
        let part = TITLE_PARTS.iter().find(|(name, _)| *name == &rest[..end]);
        shows_something |= !part.ok_or_else(invalid)?.1;
        rest = &rest[end + 1..];
    }
    if shows_something { Ok(text.to_vec()) } else { Err(invalid()) }
}

pub(super) fn oom_scores(words: &[Vec<u8>]) -> Result<(), String> {
    if words.len() != 3 {
        return Err("wrong number of arguments".to_owned());
    }
    let is_score = |word: &Vec<u8>| {
        value::number::parse_i64(word).is_some_and(|score| (-2000..=2000).contains(&score))
    };
    if !words.iter().all(is_score) {
        return Err(
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned()
        );
    }
    Ok(())
}

pub(super) fn shutdown(words: &[Vec<u8>]) -> Result<(), String> {
    let names: [&[u8]; 5] = [b"default", b"save", b"nosave", b"now", b"force"];
    let is_name = |word: &Vec<u8>| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    if words.is_empty() || !words.iter().all(is_name) {
        return Err("argument(s) must be one of the following: default, save, nosave, now, force"
            .to_owned());
    }
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    if has("save") && has("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    Ok(())
}

pub(super) fn aclfile(path: &[u8]) -> Result<Vec<u8>, String> {
    if !path.is_empty() {
        return Err("users besides 'default' are not supported".to_owned());
    }
    Ok(Vec::new())
}

pub(super) fn replicaof(words: &[Vec<u8>]) -> Result<(), String> {
    match words {
        [] => Ok(()),
        [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => Ok(()),
        [_, _] => Err(NO_REPLICATION.to_owned()),
        _ => Err("wrong number of arguments".to_owned()),
    }
}

pub(super) fn hostname(name: &[u8]) -> Result<Vec<u8>, String> {
    if name.len() >= 256 {
        return Err("Hostnames must be less than 256 characters".to_owned());
    }
    if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte)) {
        return Err(
            "Hostnames may only contain alphanumeric characters, hyphens or dots".to_owned()
        );
    }
    Ok(name.to_vec())
}
