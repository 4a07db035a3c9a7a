//! Lines of Redis's files that set no option: users, modules, renamed commands.
//!
//! None of this is there. A line that changes nothing is read over; one that would keep somebody
//! out, or let something in, is refused, since nobody would notice that it does not.

/// Options of older versions, which Redis reads over too.
const FORGOTTEN: &[&[u8]] =
    &[b"list-max-ziplist-entries", b"list-max-ziplist-value", b"lua-replicate-commands"];

/// What a rule of the default user may say, of which each must be said at least once: with all of
/// them it is the user that everybody is without a line.
const EVERYBODY: [&[&[u8]]; 4] =
    [&[b"on"], &[b"nopass"], &[b"~*", b"allkeys"], &[b"+@all", b"allcommands"]];

/// What such a rule may say besides.
const HARMLESS: &[&[u8]] = &[b"&*", b"allchannels", b"sanitize-payload", b"skip-sanitize-payload"];

/// Reads a line that names no option. Errors: why it cannot be kept, or Redis's text if there is no
/// such line.
pub(super) fn read(words: &[Vec<u8>]) -> Result<(), String> {
    let (name, values) = words.split_first().ok_or_else(unknown)?;
    let refusal = match (name.to_ascii_lowercase().as_slice(), values) {
        (name, [_]) if FORGOTTEN.contains(&name) => return Ok(()),
        (b"user", [user, rules @ ..]) if user == b"default" && is_everybody(rules) => return Ok(()),
        (b"user", [_, ..]) => {
            "the only user is 'default', who may do everything, with the password of requirepass"
        }
        (b"rename-command", [_, _]) => "commands cannot be renamed or taken away",
        (b"loadmodule", [_, ..]) => "modules are not supported",
        _ => return Err(unknown()),
    };
    Err(refusal.to_owned())
}

fn unknown() -> String {
    "Bad directive or wrong number of arguments".to_owned()
}

fn is_everybody(rules: &[Vec<u8>]) -> bool {
    let is_one = |rule: &Vec<u8>, of: &[&[u8]]| of.iter().any(|it| rule.eq_ignore_ascii_case(it));
    let is_known = |rule| is_one(rule, HARMLESS) || EVERYBODY.iter().any(|of| is_one(rule, of));
    rules.iter().all(is_known) && EVERYBODY.iter().all(|of| rules.iter().any(|it| is_one(it, of)))
}
