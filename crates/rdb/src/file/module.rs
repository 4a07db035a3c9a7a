//! Values of a module: what a server writes that others have no form for. A Redis without the module says so and goes no
//! further; a tool that knows the format passes over them.

use super::read::{MODULE_END, MODULE_STRING, MODULE_VALUE_2};
use crate::length;
use crate::text;

/// The characters of a module's name, in the order of their numbers.
const NAME_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CHAR_BITS: u32 = 6;
const VERSION_BITS: u32 = 10;

/// The id of a module's type: its name, of 9 characters, and the version of its values.
pub const fn module_id(name: &[u8; 9], version: u64) -> u64 {
    assert!(version < 1 << VERSION_BITS);
    let (mut id, mut at) = (0, 0);
    while at < name.len() {
        let mut number = 0;
        while NAME_CHARS[number] != name[at] {
            number += 1;
        }
        id = id << CHAR_BITS | number as u64;
        at += 1;
    }
    id << VERSION_BITS | version
}

/// Writes a value of a module that is one string, its type in front.
pub fn module_value(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    out.push(MODULE_VALUE_2);
    length::write(out, id);
    length::write(out, MODULE_STRING);
    text::write(out, value);
    length::write(out, MODULE_END);
}
