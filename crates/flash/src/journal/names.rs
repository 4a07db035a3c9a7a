//! The names of the files in the journal's folder.

use super::Position;
use super::header::NUMBER_MAX;

/// The checkpoint.
pub(crate) const MANIFEST: &str = "manifest";
/// What becomes it once it is whole.
pub(crate) const MANIFEST_NEW: &str = "manifest.new";

/// What becomes a segment once it has a header and what it begins with.
pub(crate) const SEGMENT_NEW: &str = "journal.new";

/// What becomes what a checkpoint says of the flash, where that is repaired.
pub(crate) const FLASH_NEW: &str = "flash.new";

/// What a name in the folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A segment, by its number.
    Segment(u64),
    /// The snapshot of a checkpoint.
    Snapshot(Position),
    /// What the checkpoint says of the flash that its snapshot refers to.
    Flash(Position),
    /// A file that was being written.
    Unfinished,
    /// Anything else, which is left alone.
    Other,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Self {
        let number = |front: &str, back: &str| -> Option<u64> {
            let number = name.strip_prefix(front)?.strip_suffix(back)?.parse().ok()?;
            (number <= NUMBER_MAX).then_some(number)
        };
        // A name that is written otherwise than the journal does is none of its own.
        let segment = number("journal.", "").filter(|&number| segment(number) == name);
        let snapshot = number("snapshot.", ".rdb").map(Position);
        let flash = number("flash.", "").map(Position);
        if let Some(number) = segment {
            Self::Segment(number)
        } else if let Some(position) = snapshot.filter(|&position| self::snapshot(position) == name)
        {
            Self::Snapshot(position)
        } else if let Some(position) = flash.filter(|&position| self::flash(position) == name) {
            Self::Flash(position)
        } else if [MANIFEST_NEW, SEGMENT_NEW, FLASH_NEW].contains(&name)
            || number("temp-", ".rdb").is_some()
            || number("temp-", "-beside.rdb").is_some()
        {
            Self::Unfinished
        } else {
            Self::Other
        }
    }
}

pub(crate) fn segment(number: u64) -> String {
    format!("journal.{number:06}")
}

pub(crate) fn snapshot(position: Position) -> String {
    format!("snapshot.{}.rdb", position.0)
}

pub(crate) fn flash(position: Position) -> String {
    format!("flash.{}", position.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for number in [0, 7, 999_999, 1_000_000, NUMBER_MAX] {
            assert_eq!(Name::parse(&segment(number)), Name::Segment(number));
            let position = Position(number);
            assert_eq!(Name::parse(&snapshot(position)), Name::Snapshot(position));
            assert_eq!(Name::parse(&flash(position)), Name::Flash(position));
        }
        let others = [
            ("journal.7", Name::Other),
            ("journal.+00007", Name::Other),
            ("journal.0000000000007", Name::Other),
            ("journal.", Name::Other),
            ("journal.18446744073709551615", Name::Other),
            ("snapshot.07.rdb", Name::Other),
            ("snapshot.7", Name::Other),
            ("flash.07", Name::Other),
            ("flash.", Name::Other),
            ("temp-123.rdb", Name::Unfinished),
            ("temp-123-beside.rdb", Name::Unfinished),
            ("temp-x.rdb", Name::Other),
            (MANIFEST_NEW, Name::Unfinished),
            (SEGMENT_NEW, Name::Unfinished),
            (FLASH_NEW, Name::Unfinished),
            ("damaged-1.journal.000007", Name::Other),
            ("damaged-1.snapshot.7.rdb", Name::Other),
            (MANIFEST, Name::Other),
            ("lock", Name::Other),
        ];
        for (name, expected) in others {
            assert_eq!(Name::parse(name), expected, "{name}");
        }
    }
}
