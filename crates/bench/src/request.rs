//! Requests, put together from prepared pieces: only the digits of the key and the value differ
//! from one to the next.

use crate::plan::Plan;
use crate::values::{Value, Values};

/// Digits of the largest key number.
const DIGITS_MAX: usize = 20;

/// The two requests of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// SET of a key to its value.
    Set,
    /// GET of a key.
    Get,
}

/// Everything of a request that is known beforehand.
#[derive(Debug, Clone)]
pub struct Templates {
    /// By number of digits: all up to the digits of the key.
    set: Vec<Vec<u8>>,
    get: Vec<Vec<u8>>,
    /// What follows the value of a SET.
    set_tail: Vec<u8>,
    /// Whether all values have one size, and then the text between key and value.
    value_head: Option<Vec<u8>>,
}

impl Templates {
    /// Prepares the requests of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let set_parts = if plan.expiry.is_some() { 5 } else { 3 };
        let head = |parts: usize, name: &str| -> Vec<Vec<u8>> {
            let prefix = &plan.key_prefix;
            (0..=DIGITS_MAX)
                .map(|digits| {
                    let key_bytes = prefix.len() + digits;
                    format!("*{parts}\r\n${}\r\n{name}\r\n${key_bytes}\r\n{prefix}", name.len())
                        .into_bytes()
                })
                .collect()
        };
        let tail = match plan.expiry {
            Some(seconds) => {
                let text = seconds.to_string();
                format!("\r\n$2\r\nEX\r\n${}\r\n{text}\r\n", text.len())
            }
            None => "\r\n".to_owned(),
        };
        let fixed = plan.sizes.min == plan.sizes.max;
        Self {
            set: head(set_parts, "SET"),
            get: head(2, "GET"),
            set_tail: tail.into_bytes(),
            value_head: fixed.then(|| format!("\r\n${}\r\n", plan.sizes.min).into_bytes()),
        }
    }

    /// Appends a GET of `key` to `output`.
    pub fn append_get(&self, key: u64, output: &mut Vec<u8>) {
        append_key(&self.get, key, output);
        output.extend_from_slice(b"\r\n");
    }

    /// Appends a SET of `key` to `value` to `output`.
    pub fn append_set(&self, key: u64, value: Value, values: &Values, output: &mut Vec<u8>) {
        append_key(&self.set, key, output);
        match &self.value_head {
            Some(head) => output.extend_from_slice(head),
            None => {
                output.extend_from_slice(b"\r\n$");
                output.extend_from_slice(itoa::Buffer::new().format(value.size()).as_bytes());
                output.extend_from_slice(b"\r\n");
            }
        }
        values.append(value, output);
        output.extend_from_slice(&self.set_tail);
    }
}

fn append_key(heads: &[Vec<u8>], key: u64, output: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(key).as_bytes();
    output.extend_from_slice(&heads[digits.len()]);
    output.extend_from_slice(digits);
}
