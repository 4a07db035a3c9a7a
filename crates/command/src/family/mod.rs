//! The families of commands that work on keys: one line each.

pub mod bitmap;
pub mod bitmap_field;
pub mod database;
pub mod dump;
pub mod expire;
pub mod generic;
pub mod geo;
pub mod geo_search;
pub mod hash;
pub mod hash_all;
pub mod hash_expiry;
pub mod hash_get_set;
pub mod hyperloglog;
pub mod list;
pub mod list_move;
pub mod list_range;
pub mod list_search;
pub mod list_wait;
pub mod memory;
pub mod object;
pub mod restore;
pub(crate) mod restored;
mod restored_stream;
mod room;
mod sample;
mod scan;
pub mod set;
pub mod set_operation;
pub mod set_random;
pub mod sort;
mod sort_pattern;
pub mod sorted_set;
pub mod sorted_set_operation;
pub mod sorted_set_pop;
pub mod sorted_set_random;
pub mod sorted_set_range;
pub mod sorted_set_remove;
pub mod sorted_set_wait;
pub mod stream;
pub mod stream_claim;
pub mod stream_group;
pub mod stream_info;
pub mod stream_pending;
pub mod stream_range;
pub mod stream_read;
pub mod string;
pub mod string_lcs;
pub mod string_many;
pub mod string_number;
pub mod string_range;

use crate::lookup::names_are_short_enough;
use crate::spec::Command;

/// Every command of this crate.
pub const FAMILIES: &[&[Command]] = &[
    string::COMMANDS,
    string_many::COMMANDS,
    string_number::COMMANDS,
    string_range::COMMANDS,
    string_lcs::COMMANDS,
    bitmap::COMMANDS,
    bitmap_field::COMMANDS,
    hyperloglog::COMMANDS,
    set::COMMANDS,
    set_random::COMMANDS,
    set_operation::COMMANDS,
    sorted_set::COMMANDS,
    sorted_set_range::COMMANDS,
    sorted_set_remove::COMMANDS,
    sorted_set_pop::COMMANDS,
    sorted_set_wait::COMMANDS,
    sorted_set_random::COMMANDS,
    sorted_set_operation::COMMANDS,
    geo::COMMANDS,
    geo_search::COMMANDS,
    hash::COMMANDS,
    hash_all::COMMANDS,
    hash_expiry::COMMANDS,
    hash_get_set::COMMANDS,
    list::COMMANDS,
    list_range::COMMANDS,
    list_search::COMMANDS,
    list_move::COMMANDS,
    sort::COMMANDS,
    list_wait::COMMANDS,
    stream::COMMANDS,
    stream_range::COMMANDS,
    stream_read::COMMANDS,
    stream_group::COMMANDS,
    stream_pending::COMMANDS,
    stream_claim::COMMANDS,
    stream_info::COMMANDS,
    generic::COMMANDS,
    expire::COMMANDS,
    dump::COMMANDS,
    restore::COMMANDS,
    scan::COMMANDS,
    object::COMMANDS,
    database::COMMANDS,
    memory::COMMANDS,
];

const _: () = assert!(names_are_short_enough(FAMILIES), "a command's name is too long");
