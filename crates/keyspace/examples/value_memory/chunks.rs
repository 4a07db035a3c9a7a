//! Values in a log of chunks, each with a count of its live bytes. Demotion takes a chunk: values
//! that nobody used go to flash, the others move to a chunk of survivors, and the chunk is free. What
//! is resident is what the chunks in use come to, by construction (log-structured memory: Rumble,
//! Kejriwal and Ousterhout, FAST 2014).

use std::collections::VecDeque;
use std::ops::Range;

use crate::Values;
use crate::index::Index;

const CHUNK_BYTES: usize = 256 << 10;
/// Before a value: its key's number and its length.
const HEAD_BYTES: usize = 8;
const ALIGN: usize = 8;
/// Of so many chunks, the oldest first, the emptiest is the victim.
const CANDIDATES: usize = 64;
/// Another than the oldest must be emptier by this part of a chunk.
const EMPTIER: usize = CHUNK_BYTES / 3;
/// The allocator's rounding and slack over records: 1/16.
const SLACK_SHIFT: u32 = 4;
/// Victims of one slice.
const VICTIMS_MAX: usize = 4;
/// Free chunks that are kept.
const FREE_MAX: usize = 4;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    chunk: u32,
    offset: u32,
}

struct Chunk {
    bytes: Box<[u8]>,
    used: usize,
    live: usize,
}

pub(crate) struct Chunks {
    index: Index,
    places: Vec<Option<Place>>,
    chunks: Vec<Option<Chunk>>,
    /// Chunks in use, the oldest first.
    order: VecDeque<u32>,
    /// Numbers of chunks that were let go.
    unused: Vec<u32>,
    free: Vec<Chunk>,
    fresh: u32,
    survivors: u32,
}

impl Chunks {
    pub(crate) fn new(index: Index) -> Chunks {
        let places = vec![None; index.len()];
        let mut chunks = Chunks {
            index: index.begin(),
            places,
            chunks: Vec::new(),
            order: VecDeque::new(),
            unused: Vec::new(),
            free: Vec::new(),
            fresh: 0,
            survivors: 0,
        };
        chunks.fresh = chunks.open();
        chunks.survivors = chunks.open();
        chunks
    }

    fn open(&mut self) -> u32 {
        let new = || Chunk { bytes: vec![0; CHUNK_BYTES].into(), used: 0, live: 0 };
        let chunk = self.free.pop().unwrap_or_else(new);
        let number = self.unused.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() as u32 - 1
        });
        self.chunks[number as usize] = Some(chunk);
        self.order.push_back(number);
        number
    }

    fn chunk(&mut self, number: u32) -> &mut Chunk {
        self.chunks[number as usize].as_mut().expect("invariant: places name chunks in use")
    }

    fn append(&mut self, key: usize, value: &[u8], survives: bool) {
        let open = if survives { self.survivors } else { self.fresh };
        let open = match self.chunk(open).used + entry_bytes(value.len()) > CHUNK_BYTES {
            true => self.open(),
            false => open,
        };
        *(if survives { &mut self.survivors } else { &mut self.fresh }) = open;
        let place = self.chunk(open).append(key, value);
        self.places[key] = Some(Place { chunk: open, offset: place as u32 });
    }

    /// What is resident by its own account: chunks, and records with the allocator's slack.
    fn accounted(&self) -> usize {
        let records = self.index.record_bytes;
        (self.order.len() + self.free.len()) * CHUNK_BYTES + records + (records >> SLACK_SHIFT)
    }

    fn settle(&mut self) {
        for _ in 0..VICTIMS_MAX {
            if self.accounted() <= self.index.budget {
                break;
            }
            let start = std::time::Instant::now();
            self.clean();
            self.free.truncate(if self.accounted() > self.index.budget { 0 } else { FREE_MAX });
            self.index.slice_max = self.index.slice_max.max(start.elapsed());
        }
    }

    /// The emptiest of the oldest chunks.
    fn victim(&self) -> usize {
        let open = [self.fresh, self.survivors];
        let live = |number: u32| self.chunks[number as usize].as_ref().map_or(0, |one| one.live);
        let candidates = self.order.iter().enumerate().filter(|(_, number)| !open.contains(number));
        let weighed = candidates
            .take(CANDIDATES)
            .enumerate()
            .map(|(rank, (at, number))| (live(*number) + if rank == 0 { 0 } else { EMPTIER }, at));
        weighed.min().expect("the budget holds more than the open chunks").1
    }

    fn clean(&mut self) {
        let number = self.order.remove(self.victim()).expect("the victim is one of them");
        let mut chunk = self.chunks[number as usize].take().expect("it is in use");
        let mut offset = 0;
        while offset < chunk.used {
            let (key, value) = chunk.entry(offset);
            if self.places[key] == Some(Place { chunk: number, offset: offset as u32 }) {
                if self.index.age(key) {
                    self.index.demote(&chunk.bytes[value.clone()]);
                    self.places[key] = None;
                } else {
                    self.append(key, &chunk.bytes[value.clone()], true);
                    self.index.moved += 1;
                }
            }
            offset += entry_bytes(value.len());
        }
        (chunk.used, chunk.live) = (0, 0);
        self.free.push(chunk);
        self.unused.push(number);
    }
}

/// Bytes that a value takes in a chunk.
fn entry_bytes(value_len: usize) -> usize {
    HEAD_BYTES + value_len.next_multiple_of(ALIGN)
}

impl Chunk {
    fn append(&mut self, key: usize, value: &[u8]) -> usize {
        let (offset, size) = (self.used, entry_bytes(value.len()));
        let head = &mut self.bytes[offset..offset + HEAD_BYTES];
        head[..4].copy_from_slice(&(key as u32).to_le_bytes());
        head[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes[offset + HEAD_BYTES..][..value.len()].copy_from_slice(value);
        self.used += size;
        self.live += size;
        offset
    }

    /// The key and the value at an offset.
    fn entry(&self, offset: usize) -> (usize, Range<usize>) {
        let word = |at: usize| {
            let bytes = &self.bytes[at..at + 4];
            u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
        };
        let start = offset + HEAD_BYTES;
        (word(offset), start..start + word(offset + 4))
    }
}

impl Values for Chunks {
    fn set(&mut self, key: usize, value: &[u8]) {
        self.index.add(key);
        if let Some(place) = self.places[key] {
            self.index.touch(key);
            let (_, old) = self.chunk(place.chunk).entry(place.offset as usize);
            if old.len() == value.len() {
                return self.chunk(place.chunk).bytes[old].copy_from_slice(value);
            }
            self.chunk(place.chunk).live -= entry_bytes(old.len());
            self.index.count_out(old.len());
        }
        self.append(key, value, false);
        self.index.count_in(value.len());
        self.settle();
    }

    fn get(&mut self, key: usize) -> bool {
        let found = self.places[key].is_some();
        if found {
            self.index.touch(key);
        }
        found
    }

    fn index(&self) -> &Index {
        &self.index
    }
}
