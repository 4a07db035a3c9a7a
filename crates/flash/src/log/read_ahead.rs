//! Where reads follow the order in which things were written, and how much is read at a time there.
//!
//! Two tables. Reads that belong to nothing known are counted by the region of a segment they fall
//! in; the count of a region goes when other reads take its place, or when none came for a while. So
//! reads all over the flash leave it at one block each. A region that a few reads have found begins a
//! *stream*: reads near its front belong to it, and bring a window around them, an aligned one, so
//! that reads that come out of order ask for the same. The window doubles when what it brought was
//! used. Once it is as long as the longest read, the blocks in front of the stream are read before
//! anybody asks, as far as it comes within a part of the time that a block stays unused. The window of a stream whose blocks go without having been used is halved; below the
//! smallest the stream ends, and has to be found again. At the end of a segment it goes on in the one that the same worker
//! wrote next, as far as that is known: not over a restart.
//!
//! How much of the blocks that go was used says whether reads follow each other for long, or for runs of records that others lie
//! between. Where too little was, nothing is read beyond a window; from a quarter on a stream begins with a larger one.
//! Used-up blocks that go for want of demand and blocks that go for want of memory are not counted.
//!
//! All of it lives on credit: what is read ahead is paid by what was used before, and by a small part
//! of what is read anyway. So bytes that nobody wants are at most that part, whatever the reads are.

use std::ops::Range;

use super::block_cache::{Evicted, stays_of};

/// The smallest window, and the unit of all: bytes.
const WINDOW_BYTES_MIN: u32 = 8 << 10;
/// The largest window, by how much is kept: a sixteenth of that, within bounds. One read brings at most `BLOCK_BYTES` of it. A
/// worker asks for what is gathered in a turn at its end, and a turn of 64 clients that walk uses up a quarter of a megabyte: with
/// less than that ahead, each of them waits for the drive all the time.
const WINDOW_BYTES_MAX: Range<u32> = 256 << 10..1 << 20;
const WINDOW_OF_KEPT_SHIFT: u32 = 4;
/// What a stream comes to within this part of the time that a block stays unused is read ahead: 1/4. Of what a slow one comes
/// to later, much would go again before that.
const AHEAD_OF_STAY_SHIFT: u32 = 2;
/// A block counts this much towards the average pace of a stream: 1/4.
const PACE_SHIFT: u32 = 2;
/// Bytes of one read ahead, and of a block that is kept. With it a drive is as fast as with larger
/// ones.
pub(crate) const BLOCK_BYTES: u32 = 64 << 10;
/// A longer record is a large read by itself.
const RECORD_BYTES_MAX: u32 = BLOCK_BYTES / 2;
/// Bytes of a region in which reads are counted.
const REGION_BYTES: u32 = 256 << 10;
/// Regions that are counted.
const REGIONS: usize = 256;
/// A region is forgotten when so many reads have gone elsewhere since its last.
const REGION_STALE_READS: u32 = 128;
/// The first reads of a region that bring their own sectors alone.
const LONE_READS: u8 = 4;
/// Streams of one worker, at least and at most: the more blocks are kept, the further may clients drift apart that follow each
/// other.
const STREAMS_MIN: usize = 16;
const STREAMS_MAX: usize = 64;
/// For so many bytes that blocks may take there is a stream.
const BYTES_OF_STREAM: usize = 256 << 10;
/// A read belongs to a stream when it lies so near to where that was last, or within its window.
const NEAR_BYTES: u32 = 512 << 10;
/// Blocks in a row in one direction after which what follows is read before it is asked for.
const DRIFT_MIN: i8 = 2;
const DRIFT_MAX: i8 = 4;
/// A block was worth its read when this part of it was used: about what reads of the values alone
/// would have taken of a drive that gives 75,000 of them or 2 GB a second.
const USED_SHIFT: u32 = 5;
/// What is read ahead unpaid: this part of what is read without, 1/128.
const UNPAID_SHIFT: u32 = 7;
/// All streams end when blocks were used again less than `USES_MIN` times while so many reads were gathered: as many come
/// by chance, and pay for more of the same.
const JUDGED_READS: u32 = 4096;
const USES_MIN: u32 = JUDGED_READS / 32;
/// The part of evicted blocks that was used is known when they came to so many bytes; later ones count more than earlier ones,
/// which are halved together as often.
const JUDGED_BYTES: u32 = 1 << 20;
/// Blocks ahead of a window are read until less than 3/8 of evicted blocks was used, and again from 1/2 on: where clients walk
/// over runs of records that those of others lie between, what follows a run is not asked for.
const AHEAD_BELOW: (u32, u32) = (3, 8);
const AHEAD_FROM: (u32, u32) = (1, 2);
/// From this part on a stream begins with a window of half a block: 1/4.
const WIDE_FROM: (u32, u32) = (1, 4);
const CREDIT_BYTES_FIRST: i64 = 256 << 10;
const CREDIT_BYTES_MAX: i64 = 2 << 20;

/// What one worker knows of the order of its reads.
pub(crate) struct ReadAhead {
    regions: Box<[Region; REGIONS]>,
    streams: Vec<Stream>,
    streams_max: usize,
    window_bytes_max: u32,
    /// A stream reads what it comes to within so many look-ups.
    ahead_look_ups: u64,
    /// Device reads so far, modulo 2^32.
    reads: u32,
    /// The same when streams were last judged, and the uses of blocks since.
    judged_at: u32,
    uses: u32,
    credit_bytes: i64,
    evicted: EvictedBytes,
    /// Whether enough of them was used to read blocks that nobody has asked for.
    reads_blocks_ahead: bool,
}

/// Bytes of blocks that were evicted lately, and of those that were served.
#[derive(Default)]
struct EvictedBytes {
    all: u32,
    served: u32,
}

/// Reads that belong to no stream, in one region.
#[derive(Copy, Clone)]
struct Region {
    segment: u32,
    number: u32,
    /// `ReadAhead::reads` at the last.
    read_at: u32,
    reads: u8,
}

/// Reads that follow each other.
#[derive(Copy, Clone)]
struct Stream {
    segment: u32,
    /// The block where it was last.
    front: u32,
    /// How its front has moved: up, or down where negative.
    drift: i8,
    window_bytes: u32,
    /// `ReadAhead::reads` when it was last heard of.
    read_at: u32,
    /// The look-up at which a block was last used for the first time, and from one to the next, on average.
    used_at: Option<u64>,
    look_ups_per_block: u64,
}

impl ReadAhead {
    pub(crate) fn new() -> Self {
        let nowhere = Region { segment: u32::MAX, number: 0, read_at: 0, reads: 0 };
        Self {
            regions: Box::new([nowhere; REGIONS]),
            streams: Vec::new(),
            streams_max: STREAMS_MIN,
            window_bytes_max: WINDOW_BYTES_MAX.start,
            ahead_look_ups: 0,
            reads: 0,
            judged_at: 0,
            uses: 0,
            credit_bytes: CREDIT_BYTES_FIRST,
            evicted: EvictedBytes::default(),
            reads_blocks_ahead: true,
        }
    }

    /// Says how many bytes the blocks that were read ahead may come to.
    pub(crate) fn set_kept_bytes_max(&mut self, bytes: usize) {
        self.streams_max = (bytes / BYTES_OF_STREAM).clamp(STREAMS_MIN, STREAMS_MAX);
        let window_bytes = (bytes >> WINDOW_OF_KEPT_SHIFT)
            .clamp(WINDOW_BYTES_MAX.start as usize, WINDOW_BYTES_MAX.end as usize);
        // A power of two, as all windows are that are halved from it: the drive takes whole sectors alone.
        self.window_bytes_max = 1 << window_bytes.ilog2();
        self.ahead_look_ups = stays_of(bytes) >> AHEAD_OF_STAY_SHIFT;
        // Those that were longest not heard of go.
        while self.streams.len() > self.streams_max {
            self.end_oldest_stream();
        }
    }

    /// Notes that the device is to be asked for these sectors of a segment. Returns what to read
    /// instead; none: nothing but them.
    pub(crate) fn note_read(&mut self, segment: u32, sectors: &Range<u32>) -> Option<Range<u32>> {
        self.reads = self.reads.wrapping_add(1);
        let bytes = sectors.len() as u32;
        let known = self.stream_near(segment, sectors.start).map(|stream| stream.window_bytes);
        let window_bytes = match known {
            Some(bytes) => bytes.min(BLOCK_BYTES),
            None if self.begins_stream(segment, sectors.start, bytes) => self.first_window(bytes),
            None => 0,
        };
        let start = sectors.start - sectors.start % window_bytes.max(1);
        let fits = sectors.end <= start + window_bytes && bytes < window_bytes;
        if !fits || bytes > RECORD_BYTES_MAX || self.credit_bytes <= 0 {
            self.add_credit(i64::from(bytes >> UNPAID_SHIFT));
            return None;
        }
        Some(start..start + window_bytes)
    }

    /// Finds the stream that a read belongs to, and moves it there.
    fn stream_near(&mut self, segment: u32, start: u32) -> Option<&mut Stream> {
        let index = self.find_stream(segment, start)?;
        let stream = &mut self.streams[index];
        stream.move_to(start / BLOCK_BYTES);
        stream.read_at = self.reads;
        Some(stream)
    }

    fn find_stream(&self, segment: u32, start: u32) -> Option<usize> {
        let block = start / BLOCK_BYTES;
        let is_near = |stream: &Stream| {
            let near_bytes = stream.window_bytes.max(NEAR_BYTES);
            stream.segment == segment && stream.front.abs_diff(block) <= near_bytes / BLOCK_BYTES
        };
        self.streams.iter().position(is_near)
    }

    /// Counts a read that belongs to no stream. True: one begins with it.
    fn begins_stream(&mut self, segment: u32, start: u32, bytes: u32) -> bool {
        let number = start / REGION_BYTES;
        let region = &mut self.regions[region_slot(segment, number)];
        let is_known = (region.segment, region.number) == (segment, number)
            && self.reads.wrapping_sub(region.read_at) <= REGION_STALE_READS;
        let reads = if is_known { region.reads } else { 0 };
        *region = Region { segment, number, read_at: self.reads, reads: reads + 1 };
        if reads < LONE_READS {
            return false;
        }
        region.reads = 0;
        self.push_stream(Stream {
            segment,
            front: start / BLOCK_BYTES,
            drift: 0,
            window_bytes: self.first_window(bytes),
            read_at: self.reads,
            used_at: None,
            look_ups_per_block: self.ahead_look_ups.max(1),
        });
        true
    }

    /// The window that a stream begins with: what a read of so many bytes asks for and as much again, and more where what
    /// was read ahead has been used of late.
    fn first_window(&self, bytes: u32) -> u32 {
        let is_wide = self.evicted.is_served(WIDE_FROM) == Some(true);
        let learned = if is_wide { BLOCK_BYTES / 2 } else { 0 };
        (2 * bytes).next_power_of_two().max(learned).clamp(WINDOW_BYTES_MIN, BLOCK_BYTES)
    }

    /// Adds a stream, in place of the one that was longest not heard of where there are many.
    fn push_stream(&mut self, stream: Stream) {
        if self.streams.len() >= self.streams_max {
            self.end_oldest_stream();
        }
        self.streams.push(stream);
    }

    fn end_oldest_stream(&mut self) {
        let age = |stream: &Stream| self.reads.wrapping_sub(stream.read_at);
        let oldest = (0..self.streams.len()).max_by_key(|&index| age(&self.streams[index]));
        oldest.map(|index| self.streams.swap_remove(index));
    }

    /// Notes that so many bytes are read beside those that were asked for.
    pub(crate) fn pay(&mut self, bytes: u32) {
        self.credit_bytes -= i64::from(bytes);
    }

    /// Notes that a record was served from a block that had been read ahead and used before: one use of a block may be
    /// chance.
    pub(crate) fn earn(&mut self, bytes: u32) {
        self.uses = self.uses.saturating_add(1);
        self.add_credit(i64::from(bytes) << USED_SHIFT);
    }

    fn add_credit(&mut self, bytes: i64) {
        self.credit_bytes = (self.credit_bytes + bytes).min(CREDIT_BYTES_MAX);
    }

    /// Notes that what was read ahead is used for the first time, of one block, after so many look-ups: the window of its stream
    /// grows. Returns the numbers of the blocks to read next, the nearest first: none, while the stream is young or has no
    /// direction, or too little of blocks is used. Those below 0 are in the segment that was written before, those beyond the
    /// last in the one after.
    pub(crate) fn note_use(
        &mut self,
        segment: u32,
        block: &Range<u32>,
        look_ups: u64,
    ) -> impl ExactSizeIterator<Item = i32> + use<> {
        let reads_ahead = self.credit_bytes > 0 && self.reads_blocks_ahead;
        let window_bytes_max = self.window_bytes_max;
        let ahead_look_ups = self.ahead_look_ups;
        let next = self.stream_near(segment, block.start).and_then(|stream| {
            if block.len() as u32 >= stream.window_bytes.min(BLOCK_BYTES) {
                stream.window_bytes = (2 * stream.window_bytes).min(window_bytes_max);
            }
            stream.note_pace(look_ups);
            let within_time = 2 + ahead_look_ups / stream.look_ups_per_block;
            let count = u64::from(stream.window_bytes / BLOCK_BYTES).min(within_time) as u32;
            (reads_ahead && stream.drift.abs() >= DRIFT_MIN).then_some((stream.drift, count))
        });
        let (drift, count) = next.unwrap_or_default();
        let number = (block.start / BLOCK_BYTES) as i32;
        (1..count as i32).map(move |distance| number + distance * i32::from(drift.signum()))
    }

    /// Has a stream of a segment go on at a block of another, in its direction, though there is one already. It stays
    /// where it is for those who follow.
    pub(crate) fn go_on(&mut self, from: (u32, &Range<u32>), to: (u32, u32)) {
        let Some(index) = self.find_stream(from.0, from.1.start) else { return };
        let (segment, front) = to;
        let stream = Stream { segment, front, ..self.streams[index] };
        match self.find_stream(segment, front * BLOCK_BYTES) {
            Some(there) => self.streams[there].drift = stream.drift,
            None => self.push_stream(stream),
        }
    }

    /// Notes that a block goes: the window of its stream shrinks if little of it was used, and from the smallest on the
    /// stream ends.
    pub(crate) fn note_eviction(&mut self, block: &Evicted) {
        self.learn(block);
        if u64::from(block.used_bytes) << USED_SHIFT >= block.range.len() as u64 {
            return;
        }
        let Some(index) = self.find_stream(block.segment, block.range.start) else { return };
        let stream = &mut self.streams[index];
        stream.window_bytes /= 2;
        if stream.window_bytes < WINDOW_BYTES_MIN {
            self.streams.swap_remove(index);
        }
    }

    /// Learns from a block that goes what part of blocks is used.
    fn learn(&mut self, block: &Evicted) {
        self.evicted.add(block.range.len() as u32, block.served_bytes);
        let bound = if self.reads_blocks_ahead { AHEAD_BELOW } else { AHEAD_FROM };
        if let Some(is_served) = self.evicted.is_served(bound) {
            self.reads_blocks_ahead = is_served;
        }
    }

    /// Ends all streams when few reads have followed each other for long. True: they did, so that nothing that was read
    /// ahead is worth keeping.
    pub(crate) fn ends_all(&mut self) -> bool {
        if self.reads.wrapping_sub(self.judged_at) < JUDGED_READS {
            return false;
        }
        self.judged_at = self.reads;
        let is_idle = std::mem::take(&mut self.uses) < USES_MIN;
        if is_idle {
            self.streams.clear();
            (self.evicted, self.reads_blocks_ahead) = (EvictedBytes::default(), true);
        }
        is_idle
    }

    /// Ends the stream that a block belongs to: reads there bring one block again.
    pub(crate) fn end_stream(&mut self, segment: u32, block: &Range<u32>) {
        if let Some(index) = self.find_stream(segment, block.start) {
            self.streams.swap_remove(index);
        }
    }
}

impl EvictedBytes {
    fn add(&mut self, all: u32, served: u32) {
        if self.all >= 2 * JUDGED_BYTES {
            (self.all, self.served) = (self.all / 2, self.served / 2);
        }
        self.all += all;
        self.served += served;
    }

    /// Whether at least a part of them was served. None: there were too few.
    fn is_served(&self, (part, of): (u32, u32)) -> Option<bool> {
        let is_known = self.all >= JUDGED_BYTES;
        is_known.then(|| {
            u64::from(self.served) * u64::from(of) >= u64::from(self.all) * u64::from(part)
        })
    }
}

impl Stream {
    fn note_pace(&mut self, look_ups: u64) {
        let Some(before) = self.used_at.replace(look_ups) else { return };
        let passed = look_ups - before;
        let average = self.look_ups_per_block;
        self.look_ups_per_block =
            (average - (average >> PACE_SHIFT) + (passed >> PACE_SHIFT)).max(1);
    }

    fn move_to(&mut self, block: u32) {
        let step = (block > self.front) as i8 - (block < self.front) as i8;
        self.drift = (self.drift + step).clamp(-DRIFT_MAX, DRIFT_MAX);
        self.front = block;
    }
}

/// The bytes of a block of a segment.
pub(crate) fn block_range(number: u32) -> Range<u32> {
    number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES
}

fn region_slot(segment: u32, number: u32) -> usize {
    // Fibonacci hashing, as for recent reads.
    let mixed = (u64::from(segment) << 32 | u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - REGIONS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use stdx::Random;

    use super::*;

    /// Bytes of a record, header and all.
    const RECORD: u32 = 560;
    const SECTOR: u32 = 512;
    const SEGMENT: u32 = 64 << 20;

    fn sectors_of(offset: u32) -> Range<u32> {
        offset - offset % SECTOR..(offset + RECORD).next_multiple_of(SECTOR)
    }

    /// Reads as a worker does them: with blocks kept, so many at most.
    struct Reads {
        ahead: ReadAhead,
        /// Each with the look-up that used it last, and what was used of it.
        blocks: Vec<(u64, Evicted)>,
        look_ups: u64,
        kept_max: usize,
        device_reads: u64,
        device_bytes: u64,
        hits: u64,
        /// Those in which what was asked for came before it was.
        brought_early: u64,
        sizes: HashMap<usize, u64>,
    }

    impl Reads {
        fn new(kept_max: usize) -> Reads {
            let mut ahead = ReadAhead::new();
            ahead.set_kept_bytes_max(kept_max * BLOCK_BYTES as usize);
            Reads {
                ahead,
                blocks: Vec::new(),
                look_ups: 0,
                kept_max,
                device_reads: 0,
                device_bytes: 0,
                hits: 0,
                brought_early: 0,
                sizes: HashMap::new(),
            }
        }

        /// False: there is no room.
        fn bring(&mut self, segment: u32, range: Range<u32>) -> bool {
            self.blocks.retain(|(_, block)| {
                block.segment != segment
                    || block.range.end <= range.start
                    || range.end <= block.range.start
            });
            if self.blocks.len() == self.kept_max {
                if self.look_ups - self.blocks[0].0 < 512 {
                    return false;
                }
                let (_, evicted) = self.blocks.remove(0);
                self.ahead.note_eviction(&evicted);
            }
            self.device_reads += 1;
            self.device_bytes += range.len() as u64;
            *self.sizes.entry(range.len()).or_default() += 1;
            self.blocks
                .push((self.look_ups, Evicted { segment, range, used_bytes: 0, served_bytes: 0 }));
            true
        }

        /// Reads the record at an offset.
        fn read(&mut self, segment: u32, offset: u32) {
            self.look_ups += 1;
            let sectors = sectors_of(offset);
            let holds = |(_, block): &(u64, Evicted)| {
                block.segment == segment
                    && block.range.start <= offset
                    && offset + RECORD <= block.range.end
            };
            if let Some(index) = self.blocks.iter().position(holds) {
                // The one that was used last goes last.
                let (_, mut block) = self.blocks.remove(index);
                let is_first = block.used_bytes == 0;
                block.used_bytes += RECORD;
                block.served_bytes += RECORD;
                let range = block.range.clone();
                self.blocks.push((self.look_ups, block));
                self.hits += 1;
                if !is_first {
                    self.ahead.earn(RECORD);
                } else {
                    for number in self.ahead.note_use(segment, &range, self.look_ups) {
                        let Ok(number) = u32::try_from(number) else { continue };
                        let next = block_range(number);
                        if !self.blocks.iter().any(|(_, block)| block.range == next) {
                            self.ahead.pay(next.len() as u32);
                            self.brought_early += u64::from(self.bring(segment, next));
                        }
                    }
                }
                return;
            }
            if let Some(window) = self.ahead.note_read(segment, &sectors) {
                assert!(window.start <= sectors.start && sectors.end <= window.end);
                if self.bring(segment, window.clone()) {
                    return self.ahead.pay((window.len() - sectors.len()) as u32);
                }
            }
            self.device_reads += 1;
            self.device_bytes += sectors.len() as u64;
        }
    }

    #[test]
    fn reads_in_order_are_read_ahead_in_blocks_that_grow() {
        let mut reads = Reads::new(16);
        (0..10_000).for_each(|number| reads.read(3, number * RECORD));
        let blocks = u64::from(10_000 * RECORD / BLOCK_BYTES);
        // Those that lie in two blocks are read alone here.
        assert!(reads.device_reads < 2 * blocks + 60, "{}", reads.device_reads);
        assert!(reads.device_bytes < 11_000 * u64::from(RECORD), "{}", reads.device_bytes);
        for size in [8 << 10, 16 << 10, 32 << 10] {
            assert!(reads.sizes[&size] < 8, "{size}: {}", reads.sizes[&size]);
        }
        assert!(reads.brought_early > blocks * 9 / 10, "{} of {blocks}", reads.brought_early);
    }

    #[test]
    fn windows_that_grow_and_shrink_again_begin_and_end_at_sectors_however_much_is_kept() {
        for kept_bytes in [4 << 20, (100 << 20) / 24, (128 << 20) / 24 + 1, 5_000_001, 13_333_333] {
            let mut ahead = ReadAhead::new();
            ahead.set_kept_bytes_max(kept_bytes);
            let read = |ahead: &mut ReadAhead, number: u32| {
                let sectors = sectors_of(number * RECORD);
                let window = ahead.note_read(3, &sectors)?;
                assert!(window.start.is_multiple_of(WINDOW_BYTES_MIN), "{kept_bytes}: {window:?}");
                assert!(window.len().is_power_of_two(), "{kept_bytes}: {window:?}");
                ahead.earn(RECORD);
                Some(window)
            };
            for number in 0..3_000 {
                if let Some(window) = read(&mut ahead, number) {
                    let _ahead = ahead.note_use(3, &window, number.into());
                }
            }
            // Blocks go without having been used, until the stream ends.
            let mut windows = 0;
            for number in 3_000..3_100 {
                let Some(range) = read(&mut ahead, number) else { continue };
                windows += 1;
                ahead.note_eviction(&Evicted { segment: 3, range, used_bytes: 0, served_bytes: 0 });
            }
            assert!(windows > 3, "{windows}");
        }
    }

    #[test]
    fn so_are_reads_from_the_end_to_the_beginning() {
        let mut reads = Reads::new(16);
        (0..10_000).rev().for_each(|number| reads.read(3, number * RECORD));
        let blocks = u64::from(10_000 * RECORD / BLOCK_BYTES);
        assert!(reads.device_reads < 2 * blocks + 60, "{}", reads.device_reads);
        assert!(reads.brought_early > blocks * 9 / 10, "{} of {blocks}", reads.brought_early);
    }

    #[test]
    fn reads_out_of_order_by_some_hundred_records_are_found() {
        let (mut reads, mut random) = (Reads::new(24), Random::new(5));
        let mut numbers: Vec<u32> = (0..20_000).collect();
        for at in 0..numbers.len() - 300 {
            numbers.swap(at, at + random.below(300) as usize);
        }
        numbers.iter().for_each(|number| reads.read(3, number * RECORD));
        assert!(reads.device_reads < 20_000 / 20, "{}", reads.device_reads);
    }

    #[test]
    fn clients_that_have_drifted_apart_share_what_is_read_ahead() {
        let (mut reads, mut random) = (Reads::new(32), Random::new(3));
        // They walk side by side, up to four megabytes apart: twice what is kept.
        let behind: Vec<u32> = (0..64).map(|_| random.below(120) as u32).collect();
        let mut count = 0;
        for turn in 120..1800 {
            for (client, behind) in behind.iter().enumerate() {
                reads.read(3, ((turn - behind) * 64 + client as u32) * RECORD);
                count += 1;
            }
        }
        // What is kept serves its part; each client alone asks for the rest.
        assert!(reads.device_reads < count * 11 / 20, "{} of {count}", reads.device_reads);
    }

    #[test]
    fn several_streams_are_told_apart_beside_random_reads() {
        let (mut reads, mut random) = (Reads::new(32), Random::new(7));
        let mut alone = 0;
        for number in 0..5_000 {
            let places = [(1, 0), (1, SEGMENT / 2), (2, 7 << 20), (9, 1 << 20)];
            places.iter().for_each(|(segment, from)| reads.read(*segment, from + number * RECORD));
            for _ in 0..16 {
                let before = reads.device_bytes;
                let offset = random.below(u64::from(SEGMENT / 16) - 64) as u32 * 16;
                reads.read(100 + random.below(200) as u32, offset);
                alone += u64::from(reads.device_bytes - before <= 1536);
            }
        }
        assert!(reads.hits > 4 * 5_000 * 95 / 100, "{}", reads.hits);
        assert!(alone > 16 * 5_000 * 999 / 1000, "{alone}");
    }

    #[test]
    fn reads_all_over_the_flash_bring_their_own_sectors() {
        let (mut reads, mut random) = (Reads::new(32), Random::new(11));
        for _ in 0..200_000 {
            // 2 GiB.
            let offset = random.below(u64::from(SEGMENT - RECORD) / 16) as u32 * 16;
            reads.read(random.below(32) as u32, offset);
        }
        assert_eq!(reads.device_reads + reads.hits, 200_000);
        let larger: u64 = reads.sizes.values().sum();
        assert!(larger < 20, "{larger}");
    }

    #[test]
    fn what_nobody_wants_is_read_for_a_small_part_of_what_is_read_anyway() {
        let (mut reads, mut random) = (Reads::new(16), Random::new(13));
        let mut own_bytes = 0;
        for _ in 0..200_000 {
            // So few that each is near others.
            let offset = random.below((32 << 20) / 16) as u32 * 16;
            own_bytes += sectors_of(offset).len() as u64;
            reads.read(1, offset);
        }
        // Blocks that are used twice by chance pay for a little more.
        let most = own_bytes + own_bytes / 20;
        assert!(reads.device_bytes < most, "{} of {own_bytes}", reads.device_bytes);
    }

    #[test]
    fn a_stream_whose_blocks_are_not_used_ends() {
        let mut ahead = ReadAhead::new();
        let sectors = |number: u32| number * 4096..number * 4096 + 4096;
        let windows = (0..6).map(|number| ahead.note_read(1, &sectors(number)));
        let windows: Vec<_> = windows.collect();
        assert_eq!(windows[..4], [None, None, None, None]);
        assert_eq!(windows[4], Some(4 * 4096..6 * 4096));
        assert_eq!(ahead.note_use(1, &(4 * 4096..6 * 4096), 0).count(), 0);
        assert_eq!(ahead.note_read(1, &sectors(6)), Some(4 * 4096..8 * 4096), "it has grown");
        let range = 4 * 4096..8 * 4096;
        let evicted =
            |used_bytes| Evicted { segment: 1, range: range.clone(), used_bytes, served_bytes: 0 };
        ahead.note_eviction(&evicted(4096));
        assert_eq!(ahead.note_read(1, &sectors(7)), Some(4 * 4096..8 * 4096));
        ahead.note_eviction(&evicted(100));
        assert_eq!(ahead.note_read(1, &sectors(7)), Some(6 * 4096..8 * 4096), "it has shrunk");
        ahead.note_eviction(&evicted(100));
        assert_eq!(ahead.note_read(1, &sectors(8)), None);
    }

    #[test]
    fn values_longer_than_the_smallest_window_begin_streams_as_well() {
        for kib in [10, 32] {
            let mut ahead = ReadAhead::new();
            let sectors = |number: u32| number * (kib << 10)..(number + 1) * (kib << 10);
            let windows: Vec<_> =
                (0..7).map(|number| ahead.note_read(1, &sectors(number))).collect();
            assert!(windows[..4].iter().all(Option::is_none));
            let window = windows[4..].iter().flatten().next().expect("one that they lie in");
            assert!(window.len() >= (2 * kib as usize) << 10, "{kib}: {window:?}");
        }
    }

    #[test]
    fn streams_end_when_reads_have_gone_elsewhere_for_long() {
        let mut ahead = ReadAhead::new();
        let sectors = |number: u32| number * 4096..number * 4096 + 4096;
        (0..5).for_each(|number| {
            assert_eq!(ahead.note_read(1, &sectors(number)).is_some(), number == 4)
        });
        for segment in 2..2 + JUDGED_READS - 5 {
            assert!(!ahead.ends_all());
            ahead.note_read(segment, &sectors(0));
        }
        (0..USES_MIN).for_each(|_| ahead.earn(1));
        assert!(!ahead.ends_all(), "enough was used");
        assert!(ahead.note_read(1, &sectors(5)).is_some());
        (1..USES_MIN).for_each(|_| ahead.earn(1));
        for segment in 2..2 + JUDGED_READS - 1 {
            assert!(!ahead.ends_all());
            ahead.note_read(segment, &sectors(0));
        }
        assert!(ahead.ends_all());
        assert_eq!(ahead.note_read(1, &sectors(6)), None);
    }

    #[test]
    fn without_credit_nothing_is_read_ahead() {
        let mut ahead = ReadAhead::new();
        let sectors = |number: u32| number * 4096..number * 4096 + 4096;
        assert!((0..4).all(|number| ahead.note_read(1, &sectors(number)).is_none()));
        assert!(ahead.note_read(1, &sectors(4)).is_some());
        ahead.pay(CREDIT_BYTES_MAX as u32);
        assert!(ahead.note_read(1, &sectors(5)).is_none());
        ahead.earn(CREDIT_BYTES_MAX as u32);
        assert!(ahead.note_read(1, &sectors(6)).is_some());
    }

    #[test]
    fn long_records_and_those_in_two_windows_are_read_alone() {
        let mut ahead = ReadAhead::new();
        for number in 0..20 {
            assert_eq!(ahead.note_read(1, &(number * 40_960..(number + 1) * 40_960)), None);
        }
        let mut ahead = ReadAhead::new();
        let sector = |number: u32| number * 512..number * 512 + 512;
        assert!((0..4).all(|number| ahead.note_read(1, &sector(number)).is_none()));
        assert_eq!(ahead.note_read(1, &(7680..8704)), None);
        assert_eq!(ahead.note_read(1, &(7680..8192)), Some(0..8192));
    }

    /// A stream with the longest window at block 20 of segment 1, the blocks of which are used so many look-ups apart.
    fn walked(look_ups_per_block: u64) -> (ReadAhead, u64) {
        let mut ahead = ReadAhead::new();
        ahead.set_kept_bytes_max(32 << 20);
        for number in 0..5 {
            let _ = ahead.note_read(1, &(number * 512..(number + 1) * 512));
        }
        let mut look_ups = 0;
        for number in 0..20 {
            look_ups += look_ups_per_block;
            let _ = ahead.note_use(1, &block_range(number), look_ups).count();
        }
        (ahead, look_ups + look_ups_per_block)
    }

    #[test]
    fn a_fast_stream_reads_many_blocks_ahead_and_a_slow_one_few() {
        for (look_ups_per_block, expected) in [(100, 15), (500, 5), (2000, 2), (20_000, 1)] {
            let (mut ahead, look_ups) = walked(look_ups_per_block);
            let numbers: Vec<i32> = ahead.note_use(1, &block_range(20), look_ups).collect();
            assert_eq!(numbers, Vec::from_iter(21..21 + expected), "{look_ups_per_block}");
        }
    }

    #[test]
    fn blocks_that_nobody_asked_for_are_read_while_half_of_the_blocks_is_used() {
        let (mut ahead, look_ups) = walked(100);
        let evict = |ahead: &mut ReadAhead, used_bytes: u32, count: u32| {
            // In a place without a stream, which would lose its window.
            let range = block_range(3);
            let evicted = Evicted { segment: 9, range, used_bytes: 0, served_bytes: used_bytes };
            (0..count).for_each(|_| ahead.note_eviction(&evicted));
        };
        evict(&mut ahead, BLOCK_BYTES / 5, 100);
        assert_eq!(ahead.note_use(1, &block_range(20), look_ups).count(), 0);
        assert_eq!(ahead.first_window(4096), WINDOW_BYTES_MIN);
        evict(&mut ahead, BLOCK_BYTES / 3, 100);
        assert_eq!(ahead.note_use(1, &block_range(21), look_ups + 100).count(), 0);
        assert_eq!(
            ahead.first_window(4096),
            BLOCK_BYTES / 2,
            "where reads follow each other at all"
        );
        evict(&mut ahead, BLOCK_BYTES, 100);
        assert_eq!(ahead.note_use(1, &block_range(22), look_ups + 200).count(), 15);
    }

    #[test]
    fn a_stream_goes_on_in_another_segment_and_stays_where_it_is() {
        let (mut ahead, look_ups) = walked(100);
        assert_eq!(ahead.note_use(2, &block_range(0), look_ups).count(), 0);
        ahead.go_on((1, &block_range(19)), (2, 0));
        ahead.go_on((1, &block_range(19)), (2, 0));
        assert_eq!(ahead.streams.len(), 2, "once");
        assert_eq!(ahead.note_use(2, &block_range(0), look_ups).collect::<Vec<_>>()[0], 1);
        assert_eq!(ahead.note_use(1, &block_range(20), look_ups).collect::<Vec<_>>()[0], 21);
        ahead.go_on((3, &block_range(0)), (4, 0));
        assert_eq!(ahead.streams.len(), 2, "none to go on");
    }

    #[test]
    fn reads_downwards_read_nothing_above() {
        let mut ahead = ReadAhead::new();
        for number in (0..40).rev() {
            let start = number * 8192;
            ahead.note_read(1, &(start..start + 512));
            let numbers: Vec<_> = ahead.note_use(1, &(start..start + 8192), 0).collect();
            let first = (start / BLOCK_BYTES) as i32;
            assert!(numbers.iter().all(|&number| number < first), "{start}: {numbers:?}");
        }
    }
}
