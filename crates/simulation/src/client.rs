//! A client: sends what the seed says, keeps what it is answered.

use std::collections::VecDeque;

use stdx::Random;

use crate::checker::Event;
use crate::collection::{Action, FIELDS, LIST_LEN_MAX, Patience, SCORES, SEQUENCES};
use crate::command::{
    COLLECTIONS, COUNTERS, Command, FAR_MS, HASHES, KEYS_OF_TYPE, Key, LISTS, Operation, SETS,
    SORTED_SETS, STREAMS,
};
use crate::listener::CHANNELS;
use crate::profile::{Profile, ValueSizes, Weights, pick};
use crate::reply::Reply;
use crate::stream::{CONSUMERS, GROUPS, GroupAction, StreamAction};
use crate::value::Value;
use crate::wire::{Answer, ClientEnd};

/// Requests of one transaction.
const QUEUED_MAX: u64 = 4;
/// How often a command for it is drawn.
const QUEUED_TRIES_MAX: u64 = 64;
/// Keys of one request.
const KEYS_MAX: u64 = 5;
/// How long values live that go soon.
const LIFETIME_MS_MAX: u64 = 10;
/// The same of fields, which are written together.
const FIELD_LIFETIME_MS_MAX: u64 = 40;
const FIELD_BYTES: usize = 200;
/// Of the first entries of a stream, which are read first.
const FIRST_SEQUENCES: u64 = 8;
/// Operations that are sent together.
const PIPELINE_MAX: u64 = 12;

/// What a client will send, each group at once.
pub(crate) type Script = VecDeque<Vec<Operation>>;

/// One client and its connection of the moment.
pub(crate) struct Client {
    pub(crate) wire: ClientEnd,
    /// Which of the server's connections it is.
    pub(crate) id: u64,
    /// What it asked and was answered on this connection.
    pub(crate) events: Vec<Event>,
    /// Replies that it waits for: the event, and those that it has had for it.
    waits: VecDeque<(usize, Vec<Reply>)>,
    /// Bytes sent with all events up to each.
    sent_bytes: Vec<usize>,
    /// What it will send next, each group at once.
    script: Script,
    /// Operations that it may still make up.
    operations_left: u64,
}

impl Client {
    pub(crate) fn new(wire: ClientEnd, id: u64, operations: u64) -> Client {
        Client {
            wire,
            id,
            events: Vec::new(),
            waits: VecDeque::new(),
            sent_bytes: Vec::new(),
            script: VecDeque::new(),
            operations_left: operations,
        }
    }

    /// The operations that it has not made up yet.
    pub(crate) fn operations_left(&self) -> u64 {
        self.operations_left
    }

    /// Whether it waits for a reply.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Whether it has something to send and waits for nothing.
    pub(crate) fn may_send(&self) -> bool {
        !self.is_waiting() && (!self.script.is_empty() || self.operations_left > 0)
    }

    /// Whether it waits for nothing and has sent all of its script.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_waiting() && self.script.is_empty()
    }

    /// Whether it may send its next group when another, with a script as long, goes the same way.
    pub(crate) fn is_in_step_with(&self, other: &Client) -> bool {
        let (own, others) = (self.script.len(), other.script.len());
        own > others || own == others && !other.is_waiting()
    }

    /// What it is to send next, some of what it may make up.
    pub(crate) fn set_script(&mut self, script: Script) {
        let count: usize = script.iter().map(Vec::len).sum();
        self.operations_left = self.operations_left.saturating_sub(count as u64);
        self.script = script;
    }

    /// Has it send these together.
    pub(crate) fn ask(&mut self, now_us: u64, operations: Vec<Operation>) {
        let mut bytes = Vec::new();
        let before = self.sent_bytes.last().copied().unwrap_or(0);
        for operation in operations {
            operation.write(&mut bytes);
            self.sent_bytes.push(before + bytes.len());
            self.waits.push_back((self.events.len(), Vec::new()));
            self.events.push(Event { operation, sent: now_us, answered: None });
        }
        self.wire.send(&bytes);
    }

    /// Sends the next group.
    pub(crate) fn send(&mut self, now_us: u64, author: &mut Author<'_>) {
        if self.script.is_empty() {
            self.set_script(author.write());
        }
        let Some(group) = self.script.pop_front() else { return };
        self.ask(now_us, group);
    }

    /// Takes the replies that have come. False: none has. A reply of more
    /// than `bytes_max` may be completed in turns after the run, which tells nothing of its time.
    ///
    /// Errors: they are none, or nobody asked.
    pub(crate) fn receive(&mut self, bytes_max: usize) -> Result<bool, String> {
        let mut any = false;
        while let Some(Answer { bytes, written_us, began_ms, reply }) = self.wire.receive()? {
            let tells_time = self.waits.len() == 1 && bytes <= bytes_max;
            let Some((index, replies)) = self.waits.front_mut() else {
                return Err(format!("nobody asked for {reply:?}"));
            };
            any = true;
            let event = &mut self.events[*index];
            replies.push(reply);
            if replies.len() == event.operation.requests() {
                // That of EXEC is all that matters of a transaction.
                let reply = replies.pop().expect("as many as requests, which are some");
                if tells_time {
                    check_time(&event.operation, &reply, began_ms)?;
                }
                event.answered = Some((written_us, event.operation.sorted(reply)));
                self.waits.pop_front();
            }
        }
        Ok(any)
    }

    /// Forgets what it has asked and the server has not read: it cannot have run.
    pub(crate) fn forget_unread(&mut self) {
        let sent = self.sent_bytes.last().copied().unwrap_or(0);
        let read = sent - self.wire.unread();
        let whole = self.sent_bytes.partition_point(|bytes| *bytes <= read);
        self.events.truncate(whole);
        self.waits.retain(|(index, _)| *index < whole);
    }

    /// The key that it waits for without end.
    pub(crate) fn waited_key(&self) -> Option<Key> {
        match &self.first_wait()?.operation {
            Operation::Single(Command::On(key, action)) => {
                (action.patience()? == Patience::Endless).then_some(*key)
            }
            _ => None,
        }
    }

    /// What it waits for, for people.
    pub(crate) fn first_wait(&self) -> Option<&Event> {
        self.waits.front().map(|(index, _)| &self.events[*index])
    }
}

/// Compares the time at which a transaction ran, by the server's clock, with that at which the task
/// went on that ran it: it has read the clock since. Shape: nothing behind it held up the answer.
///
/// Errors: it ran with the time of long before.
fn check_time(operation: &Operation, reply: &Reply, began_ms: u64) -> Result<(), String> {
    let (Operation::Transaction(commands), Reply::Array(replies)) = (operation, reply) else {
        return Ok(());
    };
    for (pair, reply) in commands.windows(2).zip(&replies[1..]) {
        if let ([Command::SetPx(set, _, ms), Command::PExpireTime(asked)], Reply::Integer(at)) =
            (pair, reply)
            && set == asked
            && *at > 0
        {
            let late_ms = began_ms as i64 - (at - *ms as i64);
            if late_ms > 0 {
                return Err(format!("{operation:?} ran with the time of {late_ms} ms before"));
            }
        }
    }
    Ok(())
}

/// Makes up what clients ask.
pub(crate) struct Author<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) profile: &'a Profile,
    /// The number of the last value that was written.
    pub(crate) values: &'a mut u64,
    /// Connections that may be killed.
    pub(crate) ids: &'a [u64],
    /// What `maxmemory` may be set to.
    pub(crate) max_memory: &'a [u64],
    /// Milliseconds since the start.
    pub(crate) now_ms: u64,
}

/// What a client may do next.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Rewrite,
    ReadMany,
    WriteMany,
    Count,
    Collect,
    Delete,
    Rename,
    Expire,
    Lapse,
    LapseFields,
    TimeFields,
    Deliver,
    Transaction,
    Watch,
    Select,
    Swap,
    Flush,
    Demote,
    DemoteAll,
    NoTouch,
    Configure,
    Kill,
    Publish,
    RewriteJournal,
}

impl Author<'_> {
    /// The next groups that a client sends.
    fn write(&mut self) -> Script {
        let is_pipeline = self.random.below(1000) < self.profile.pipelines;
        let count = if is_pipeline { 2 + self.random.below(PIPELINE_MAX - 1) } else { 1 };
        let operations: Vec<Operation> = (0..count).flat_map(|_| self.operations()).collect();
        match is_pipeline {
            true => VecDeque::from([operations]),
            false => operations.into_iter().map(|operation| vec![operation]).collect(),
        }
    }

    /// What two clients do at the same time: both look at two keys, and each writes one of them, of
    /// which the other must not have seen what was before.
    pub(crate) fn pair(&mut self) -> [Script; 2] {
        let one = self.random.below(self.profile.keys);
        let other = (one + 1 + self.random.below(self.profile.keys - 1)) % self.profile.keys;
        let both = [Key(one as u8), Key(other as u8)];
        let is_cold = self.random.below(2) == 0;
        both.map(|key| {
            let write = Operation::Transaction(vec![Command::Set(key, self.value())]);
            let demoted = is_cold.then(|| Operation::Single(demote(key)));
            let looks = [Command::Watch(both.into()), Command::MGet(both.into())];
            let looks = looks.map(Operation::Single);
            demoted.into_iter().chain(looks).chain([write]).map(|one| vec![one]).collect()
        })
    }

    /// Operations that belong together.
    fn operations(&mut self) -> Vec<Operation> {
        match self.kind() {
            Kind::Transaction => vec![self.transaction()],
            Kind::Watch => self.watch(),
            Kind::Lapse => self.lapse(),
            Kind::LapseFields => self.lapse_fields(),
            Kind::TimeFields => self.time_fields(),
            Kind::Deliver => self.deliver(),
            Kind::Rewrite => {
                let key = self.key();
                let commands = [Command::Set(key, self.value()), demote(key)];
                commands.map(Operation::Single).into()
            }
            kind => vec![Operation::Single(self.command(kind))],
        }
    }

    fn kind(&mut self) -> Kind {
        let Weights {
            read,
            write,
            rewrite,
            read_many,
            write_many,
            count,
            collect,
            delete,
            rename,
            expire,
            lapse,
            lapse_fields,
            time_fields,
            deliver,
            transaction,
            watch,
            select,
            swap,
            flush,
            demote,
            demote_all,
            no_touch,
            configure,
            kill,
            publish,
            rewrite_journal,
        } = self.profile.weights;
        let kinds = [
            (read, Kind::Read),
            (write, Kind::Write),
            (rewrite, Kind::Rewrite),
            (read_many, Kind::ReadMany),
            (write_many, Kind::WriteMany),
            (count, Kind::Count),
            (collect, Kind::Collect),
            (delete, Kind::Delete),
            (rename, Kind::Rename),
            (expire, Kind::Expire),
            (lapse, Kind::Lapse),
            (lapse_fields, Kind::LapseFields),
            (time_fields, Kind::TimeFields),
            (deliver, Kind::Deliver),
            (transaction, Kind::Transaction),
            (watch, Kind::Watch),
            (select, Kind::Select),
            (swap, Kind::Swap),
            (flush, Kind::Flush),
            (demote, Kind::Demote),
            (demote_all, Kind::DemoteAll),
            (no_touch, Kind::NoTouch),
            (configure, Kind::Configure),
            (kill, Kind::Kill),
            (publish, Kind::Publish),
            (rewrite_journal, Kind::RewriteJournal),
        ];
        weighted(self.random, &kinds)
    }

    fn transaction(&mut self) -> Operation {
        let count = 1 + self.random.below(QUEUED_MAX);
        let mut commands: Vec<Command> = (0..count).map(|_| self.queued()).collect();
        if self.random.below(4) == 0 {
            // Tells when it ran.
            let key = self.key();
            commands.extend([Command::SetPx(key, self.value(), FAR_MS), Command::PExpireTime(key)]);
        }
        Operation::Transaction(commands)
    }

    /// A command that a transaction may hold.
    fn queued(&mut self) -> Command {
        // Some mixtures have none.
        for _ in 0..QUEUED_TRIES_MAX {
            match self.kind() {
                Kind::Transaction
                | Kind::Watch
                | Kind::Rewrite
                | Kind::Demote
                | Kind::DemoteAll
                | Kind::Configure
                | Kind::Kill
                | Kind::RewriteJournal => {}
                kind => return self.command(kind),
            }
        }
        self.command(Kind::Read)
    }

    /// WATCH, a look at what is watched, and a transaction that depends on it.
    fn watch(&mut self) -> Vec<Operation> {
        let keys = self.keys();
        let mut operations = vec![Operation::Single(Command::Watch(keys.clone()))];
        if self.random.below(2) == 0 {
            operations.push(Operation::Single(Command::MGet(keys.clone())));
        }
        operations.push(match self.random.below(8) {
            0 => Operation::Single(Command::Unwatch),
            // Of what it has seen it changes a part: whoever changes another must not have seen what
            // was before.
            1..=4 => {
                let key = pick(self.random, &keys);
                Operation::Transaction(vec![Command::Set(key, self.value())])
            }
            _ => self.transaction(),
        });
        operations
    }

    /// A value that is there for a moment, between looks that tell when it was written: the keys show
    /// what others wrote meanwhile.
    fn lapse(&mut self) -> Vec<Operation> {
        let (key, others) = (self.key(), self.keys());
        let look = match self.random.below(4) {
            0 => Command::MGet(self.keys()),
            1 => Command::Get(key),
            _ => Command::PExpireTime(key),
        };
        [Command::MGet(others), self.short_lived(key), look].map(Operation::Single).into()
    }

    /// Fields that are there for a moment, and a look at them.
    fn lapse_fields(&mut self) -> Vec<Operation> {
        let (hash, fields) = (self.key_of(HASHES), self.fields());
        let values = fields.iter().map(|field| (*field, self.short_value())).collect();
        let write = match self.random.below(6) {
            0 => Action::HDel(self.fields()),
            _ => Action::HSet(values),
        };
        let look = match self.random.below(4) {
            0 => Action::HPExpireTime(self.fields()),
            1 => Action::HMGet(fields),
            _ => Action::HGetAll,
        };
        let time = self.field_time();
        let mut commands = [write, time, look].map(|action| Command::On(hash, action)).to_vec();
        if self.random.below(4) == 0 {
            commands.push(demote(hash));
        }
        commands.into_iter().map(Operation::Single).collect()
    }

    /// The checker takes a hash apart for each time at which one of its fields may have gone.
    fn short_value(&mut self) -> Value {
        *self.values += 1;
        Value::unique(*self.values, FIELD_BYTES, false)
    }

    fn field_time(&mut self) -> Action {
        match self.random.below(6) {
            0 => Action::HPersist(self.fields()),
            _ => {
                let at_ms = self.now_ms + 1 + self.random.below(FIELD_LIFETIME_MS_MAX);
                Action::HPExpireAt(at_ms, self.fields())
            }
        }
    }

    /// Fields with a time that does not come: all that reads them finds it, behind a crash as well.
    fn time_fields(&mut self) -> Vec<Operation> {
        let (hash, fields) = (self.key_of(HASHES), self.fields());
        let values = fields.iter().map(|field| (*field, self.short_value())).collect();
        let actions = [Action::HSet(values), Action::HPExpireAt(self.far_time(), fields)];
        actions.map(|action| Operation::Single(Command::On(hash, action))).into()
    }

    fn far_time(&mut self) -> u64 {
        FAR_MS + self.random.below(FAR_MS)
    }

    /// Entries that a consumer reads, and what becomes of some.
    fn deliver(&mut self) -> Vec<Operation> {
        let (stream, group) = (self.key_of(STREAMS), self.random.below(GROUPS.into()) as u8);
        let [consumer, other] = [(); 2].map(|()| self.random.below(CONSUMERS.into()) as u8);
        let count = 1 + self.random.below(KEYS_MAX);
        let mut actions = vec![StreamAction::Of(group, GroupAction::Create { from_first: true })];
        actions.extend((0..count).map(|_| StreamAction::Add(self.short_value())));
        let read = GroupAction::Read { consumer, count, patience: None };
        let then = match self.random.below(3) {
            0 => GroupAction::Ack(self.sequences_below(FIRST_SEQUENCES)),
            1 => {
                let sequences = self.sequences_below(FIRST_SEQUENCES);
                GroupAction::Claim { consumer: other, sequences }
            }
            _ => GroupAction::AutoClaim { consumer: other, count: 1 },
        };
        actions.extend([read, then].map(|action| StreamAction::Of(group, action)));
        let on = |action| Operation::Single(Command::On(stream, Action::Stream(action)));
        actions.into_iter().map(on).collect()
    }

    fn short_lived(&mut self, key: Key) -> Command {
        let ms = 1 + self.random.below(LIFETIME_MS_MAX);
        Command::SetPx(key, self.value(), ms)
    }

    fn command(&mut self, kind: Kind) -> Command {
        let key = self.key();
        match kind {
            Kind::Read => match self.random.below(5) {
                0 => Command::Strlen(key),
                1 => {
                    let from = self.random.below(40) as i64 - 20;
                    Command::GetRange(key, from, from + self.random.below(100) as i64)
                }
                2 => Command::Exists(self.keys()),
                _ => Command::Get(key),
            },
            Kind::Write => self.write_one(key),
            Kind::ReadMany => Command::MGet(self.keys()),
            Kind::WriteMany => {
                let pairs = self.keys().into_iter().map(|key| (key, self.value())).collect();
                match self.random.below(4) {
                    0 => Command::MSetNx(pairs),
                    _ => Command::MSet(pairs),
                }
            }
            Kind::Count => {
                let counter = self.key_of(COUNTERS);
                match self.random.below(6) {
                    0 => Command::Get(counter),
                    1 => Command::Del(vec![counter]),
                    _ => Command::IncrBy(counter, 1 + self.random.below(3) as i64),
                }
            }
            Kind::Collect if self.random.below(30) == 0 => {
                Command::LMove(self.key_of(LISTS), self.key_of(LISTS))
            }
            Kind::Collect => self.collect(),
            Kind::Delete => match self.random.below(4) {
                0 => Command::Del(vec![self.any_collection()]),
                1 => Command::Del(self.keys()),
                _ => Command::GetDel(key),
            },
            Kind::Rename => {
                let (key, to) = match self.random.below(2) {
                    0 => (key, self.key()),
                    _ => self.two_collections(),
                };
                match self.random.below(2) {
                    0 if key != to => Command::Copy(key, to),
                    _ => Command::Rename(key, to),
                }
            }
            Kind::Expire if self.random.below(2) == 0 => Command::Expire(self.any_collection()),
            Kind::Expire => Command::Expire(key),
            Kind::Lapse => self.short_lived(key),
            Kind::LapseFields => Command::On(self.key_of(HASHES), self.field_time()),
            Kind::TimeFields => {
                let action = match self.random.below(4) {
                    0 => Action::HPersist(self.fields()),
                    _ => Action::HPExpireAt(self.far_time(), self.fields()),
                };
                Command::On(self.key_of(HASHES), action)
            }
            Kind::Deliver => {
                let group = self.random.below(GROUPS.into()) as u8;
                let action = StreamAction::Of(group, self.group_action());
                Command::On(self.key_of(STREAMS), Action::Stream(action))
            }
            Kind::Select => Command::Select(self.random.below(2) as u8),
            Kind::Swap => Command::SwapDb,
            Kind::Flush if self.random.below(2) == 0 => Command::FlushDb,
            Kind::Flush => Command::FlushAll,
            Kind::Demote => match self.random.below(12) {
                8..12 => demote(self.any_collection()),
                0 => Command::other(&["TIER", "FLUSH"]),
                1 => Command::other(&["TIER", "PROMOTE", key.name()]),
                _ => demote(key),
            },
            Kind::DemoteAll => Command::other(&["TIER", "DEMOTE", "ALL"]),
            Kind::NoTouch => Command::other(&["CLIENT", "NO-TOUCH", self.one_of(&["ON", "OFF"])]),
            Kind::Configure => self.configure(),
            Kind::Kill => {
                let id = pick(self.random, self.ids).to_string();
                Command::other(&["CLIENT", "KILL", "ID", &id])
            }
            Kind::Publish => {
                *self.values += 1;
                let channel = self.one_of(&CHANNELS);
                Command::other(&["PUBLISH", channel, &self.values.to_string()])
            }
            Kind::RewriteJournal => Command::other(&["BGREWRITEAOF"]),
            Kind::Transaction | Kind::Watch | Kind::Rewrite => unreachable!("not one command"),
        }
    }

    /// A command on a collection.
    fn collect(&mut self) -> Command {
        let begin = pick(self.random, &COLLECTIONS);
        let action = match begin {
            HASHES => self.hash_action(),
            SETS => self.set_action(),
            LISTS => self.list_action(),
            SORTED_SETS => self.sorted_set_action(),
            _ => Action::Stream(self.stream_action()),
        };
        Command::On(self.key_of(begin), action)
    }

    fn hash_action(&mut self) -> Action {
        match self.random.below(14) {
            0..5 => {
                let fields = self.fields();
                Action::HSet(fields.into_iter().map(|field| (field, self.value())).collect())
            }
            5 => Action::HDel(self.fields()),
            6 => Action::HLen,
            7 => Action::HMGet((0..FIELDS).collect()),
            8 | 9 => Action::HMGet(self.fields()),
            12 | 13 => Action::HGetAll,
            _ => Action::HGet(self.field()),
        }
    }

    fn set_action(&mut self) -> Action {
        match self.random.below(12) {
            0..4 => Action::SAdd(self.fields()),
            4 | 5 => Action::SRem(self.fields()),
            6 => Action::SCard,
            7 => Action::SMIsMember((0..FIELDS).collect()),
            10 | 11 => Action::SMembers,
            _ => Action::SMIsMember(self.fields()),
        }
    }

    fn list_action(&mut self) -> Action {
        let at_head = self.random.below(2) == 0;
        match self.random.below(16) {
            14 | 15 => Action::BPop(at_head, self.patience()),
            0..4 => {
                let count = 1 + self.random.below(KEYS_MAX);
                Action::Push(at_head, (0..count).map(|_| self.value()).collect())
            }
            4..7 => Action::Pop(at_head),
            7 => Action::LLen,
            8 => Action::LTrim(0, self.random.below(LIST_LEN_MAX as u64) as i64),
            9 => Action::LRange(0, -1),
            10 | 11 => {
                let from = self.random.below(LIST_LEN_MAX as u64) as i64 - LIST_LEN_MAX / 2;
                Action::LRange(from, from + self.random.below(10) as i64)
            }
            _ => Action::LIndex(self.random.below(LIST_LEN_MAX as u64) as i64 - LIST_LEN_MAX / 2),
        }
    }

    /// Without end only where what would end it is never refused.
    fn patience(&mut self) -> Patience {
        let may_fail = self.profile.journal.as_ref().is_some_and(|journal| journal.failing > 0);
        match self.profile.room_bytes {
            None if !may_fail && self.random.below(3) == 0 => Patience::Endless,
            _ => Patience::Short,
        }
    }

    fn sorted_set_action(&mut self) -> Action {
        match self.random.below(17) {
            16 => Action::BZPop(self.random.below(2) == 0, self.patience()),
            0..5 => {
                let members = self.fields();
                Action::ZAdd(members.into_iter().map(|member| (self.score(), member)).collect())
            }
            5 => Action::ZIncrBy(1 + self.score(), self.field()),
            6 | 7 => Action::ZRem(self.fields()),
            8 | 9 => Action::ZPop(self.random.below(2) == 0),
            10 => Action::ZCard,
            11 => Action::ZRange(0, -1),
            12 => Action::ZMScore(self.fields()),
            13 => Action::ZRank(self.field()),
            14 => {
                let from = self.random.below(FIELDS.into()) as i64 - i64::from(FIELDS / 2);
                Action::ZRange(from, from + self.random.below(10) as i64)
            }
            _ => {
                let from = self.score();
                Action::ZRangeByScore(from, from + self.random.below(3) as i64)
            }
        }
    }

    fn stream_action(&mut self) -> StreamAction {
        match self.random.below(20) {
            0..5 => StreamAction::Add(self.value()),
            5 => StreamAction::Del(self.sequences()),
            6 => StreamAction::Trim(self.random.below(LIST_LEN_MAX as u64)),
            7 => StreamAction::Len,
            8 => StreamAction::Range(0, u64::MAX),
            9 => StreamAction::RevRange(1 + self.random.below(10)),
            10 => {
                let behind = self.random.below(LIST_LEN_MAX as u64);
                let patience = (self.random.below(2) == 0).then(|| self.patience());
                StreamAction::Read(behind, patience)
            }
            11..18 => {
                let group = self.random.below(GROUPS.into()) as u8;
                StreamAction::Of(group, self.group_action())
            }
            _ => {
                let from = self.random.below(SEQUENCES);
                StreamAction::Range(from, from + self.random.below(10))
            }
        }
    }

    fn group_action(&mut self) -> GroupAction {
        let consumer = self.random.below(CONSUMERS.into()) as u8;
        let count = 1 + self.random.below(KEYS_MAX);
        match self.random.below(20) {
            0..4 => GroupAction::Create { from_first: self.random.below(2) == 0 },
            4 => GroupAction::Destroy,
            5..12 => {
                let patience = (self.random.below(3) == 0).then(|| self.patience());
                GroupAction::Read { consumer, count, patience }
            }
            12..15 => GroupAction::Ack(self.sequences()),
            15 => GroupAction::Claim { consumer, sequences: self.sequences() },
            16 | 17 => GroupAction::AutoClaim { consumer, count },
            _ => GroupAction::Pending,
        }
    }

    /// Of some entries, each once.
    fn sequences(&mut self) -> Vec<u64> {
        self.sequences_below(LIST_LEN_MAX as u64)
    }

    fn sequences_below(&mut self, end: u64) -> Vec<u64> {
        let count = 1 + self.random.below(KEYS_MAX);
        let mut sequences: Vec<u64> = (0..count).map(|_| self.random.below(end)).collect();
        sequences.sort_unstable();
        sequences.dedup();
        sequences
    }

    fn score(&mut self) -> i64 {
        self.random.below(SCORES) as i64
    }

    fn field(&mut self) -> u8 {
        self.random.below(FIELDS.into()) as u8
    }

    /// Some fields of a hash or members of a set, each once.
    fn fields(&mut self) -> Vec<u8> {
        let count = 1 + self.random.below(2 * KEYS_MAX);
        let mut fields: Vec<u8> = (0..count).map(|_| self.field()).collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// A key of a type that begins there.
    fn key_of(&mut self, begin: u8) -> Key {
        Key(begin + self.random.below(KEYS_OF_TYPE.into()) as u8)
    }

    fn any_collection(&mut self) -> Key {
        let begin = pick(self.random, &COLLECTIONS);
        self.key_of(begin)
    }

    /// Both of a type.
    fn two_collections(&mut self) -> (Key, Key) {
        let one = self.any_collection();
        // The first of a type has an even number.
        (one, Key(one.0 ^ 1))
    }

    fn write_one(&mut self, key: Key) -> Command {
        let value = self.value();
        match self.random.below(10) {
            9 => Command::SetPx(key, value, FAR_MS),
            0 | 8 => Command::SetGet(key, value),
            1 => Command::SetNx(key, value),
            2 | 3 => Command::Append(key, value),
            4 => Command::SetRange(key, self.random.below(200) as usize, value),
            _ => Command::Set(key, value),
        }
    }

    fn configure(&mut self) -> Command {
        let set = |name: &str, value: &str| Command::other(&["CONFIG", "SET", name, value]);
        match self.random.below(4) {
            0 if !self.max_memory.is_empty() => {
                set("maxmemory", &pick(self.random, self.max_memory).to_string())
            }
            1 if self.profile.flash_segments.is_some() => {
                let segments = self.profile.flash_segments.unwrap_or(0) + self.random.below(32);
                set("flash-size", &(segments * crate::profile::SEGMENT_BYTES).to_string())
            }
            2 => set("tier-promotion", self.one_of(&["access", "second-touch"])),
            _ => set("tier-compression", self.one_of(&["lz4", "none"])),
        }
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.random.below(words.len() as u64) as usize]
    }

    fn key(&mut self) -> Key {
        Key(self.random.below(self.profile.keys) as u8)
    }

    fn keys(&mut self) -> Vec<Key> {
        let count = 1 + self.random.below(KEYS_MAX);
        (0..count).map(|_| self.key()).collect()
    }

    fn value(&mut self) -> Value {
        let ValueSizes { small, large, large_share, compress } = self.profile.values;
        let is_large = self.random.below(1000) < large_share;
        let len = if is_large { large } else { small };
        // Most are alike in length, so that records take each other's places.
        let len = if self.random.below(4) == 0 { 1 + self.random.below(2 * len) } else { len };
        *self.values += 1;
        Value::unique(*self.values, len as usize, compress)
    }
}

fn demote(key: Key) -> Command {
    Command::other(&["TIER", "DEMOTE", key.name()])
}

/// One of the choices, by weight. Panics: if all weights are 0.
pub(crate) fn weighted<T: Copy>(random: &mut Random, choices: &[(u64, T)]) -> T {
    let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
    let mut at = random.below(total);
    for (weight, choice) in choices {
        if at < *weight {
            return *choice;
        }
        at -= weight;
    }
    unreachable!("invariant: the weights add up")
}
