//! What a row of a table of options is, and the macros that such tables are written with.
//!
//! A row is a field of the table's struct (a cell that commands read), the name that people use
//! with its aliases, the kind with its bounds, the default as one would write it, and flags.

use super::cell::Setting;
use super::options::Config;

/// Integers of C's `int`, which most of Redis's options are.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// Bytes in a kibibyte.
pub(super) const KIB: u64 = 1 << 10;
/// Bytes in a mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// Bytes that fit into a signed 64-bit integer, Redis's bound of most sizes.
pub(super) const BYTES_MAX: u64 = i64::MAX as u64;

/// What CONFIG may do with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Changeable while running, and shown.
    pub const RUNTIME: Self = Self(0);
    /// Fixed at the start.
    pub const IMMUTABLE: Self = Self(1);
    /// Changeable only where `enable-protected-configs` allows it.
    pub const PROTECTED: Self = Self(2);
    /// Its value must not appear in logs, SLOWLOG or MONITOR.
    pub const SENSITIVE: Self = Self(4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A row of the table.
pub struct OptionRow {
    /// The name in files, on the command line and in CONFIG.
    pub name: &'static str,
    /// Further names, which CONFIG GET shows too.
    pub aliases: &'static [&'static str],
    /// The default, as one would write it.
    pub default: &'static str,
    /// What CONFIG may do with it.
    pub flags: Flags,
    /// What it is.
    pub doc: &'static str,
    pub(super) setting: fn(&Config) -> &dyn Setting,
}

/// Enumerations whose values have names.
macro_rules! choices {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$value_doc:meta])* $value:ident = $text:literal, )+ } )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $( $(#[$value_doc])* $value, )+ }

        impl Names for $name {
            const NAMES: &'static [(Self, &'static str)] = &[ $( (Self::$value, $text), )+ ];
        }
    )+ };
}

/// A table: a struct of cells, and a static of the rows. `in` says where the struct is in
/// [`Config`]; what follows `with` are fields that are no options.
macro_rules! options {
    (
        $(#[$table_doc:meta])*
        struct $table:ident in $config:ident => $place:expr; $( with $extra:ident: $extra_type:ty; )*
        $(#[$rows_doc:meta])*
        static $rows:ident;
        $(
            $(#[doc = $doc:literal])+
            $field:ident: $cell:ident<$kind:ty> = $new:expr, $name:literal $(| $alias:literal)*, $default:literal, $flag:ident;
        )+
    ) => {
        $(#[$table_doc])*
        pub struct $table {
            $( $(#[doc = $doc])+ pub $field: $cell<$kind>, )+
            $( pub(super) $extra: $extra_type, )*
        }

        impl Default for $table {
            fn default() -> Self {
                Self {
                    $( $field: $cell::new($new, $default), )+
                    $( $extra: Default::default(), )*
                }
            }
        }

        $(#[$rows_doc])*
        pub static $rows: &[OptionRow] = &[ $( OptionRow {
            name: $name,
            aliases: &[ $($alias),* ],
            default: $default,
            flags: Flags::$flag,
            doc: concat!($($doc),+),
            setting: |$config| &$place.$field,
        }, )+ ];
    };
}

pub(super) use {choices, options};
