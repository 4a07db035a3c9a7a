//! Publish and subscribe: SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE and their opposites, PUBLISH, SPUBLISH, PUBSUB.

use std::sync::Arc;

use command::{
    CommandError, CommandResult, Docs, Flags, Group, KeyFlags, KeySpec, Locks, Needs, Row,
};
use resp::{Args, Reply};
use value::glob;

use super::help::write_help;
use super::refusal::wrong_subcommand;
use super::row::{SessionCommand, SessionHandler, container};
use crate::session::{ReplyMode, Session};
use crate::state::client_memory::{refusal, request_bytes_max};
use crate::state::pubsub::Topic;

/// Flags of commands that change what the connection listens to.
const LISTEN: Flags = Flags::PUBSUB.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);
const PUBLISH: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST);
const LOOK: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE);

/// A shard channel stands where a key would, for those who route by keys.
const SHARD_CHANNEL: &[KeySpec] = &[KeySpec::at(1, KeyFlags::NOT_KEY, Needs::KeyOnly)];
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::from(1, 1, KeyFlags::NOT_KEY, Needs::KeyOnly)];

/// The rows of this family.
pub(crate) const COMMANDS: &[SessionCommand] = &[
    row(
        ("SUBSCRIBE", -2, LISTEN, "2.0.0"),
        "Listens to channels.",
        "O(N) for N channels",
        "channel [channel ...]",
        subscribe,
    ),
    row(
        ("UNSUBSCRIBE", -1, LISTEN, "2.0.0"),
        "Listens to channels, or to all, no more.",
        "O(N) for N channels",
        "[channel [channel ...]]",
        unsubscribe,
    ),
    row(
        ("PSUBSCRIBE", -2, LISTEN, "2.0.0"),
        "Listens to the channels whose names match patterns.",
        "O(N) for N patterns",
        "pattern [pattern ...]",
        psubscribe,
    ),
    row(
        ("PUNSUBSCRIBE", -1, LISTEN, "2.0.0"),
        "Listens to patterns, or to all, no more.",
        "O(N) for N patterns",
        "[pattern [pattern ...]]",
        punsubscribe,
    ),
    Row {
        keys: SHARD_CHANNELS,
        ..row(
            ("SSUBSCRIBE", -2, LISTEN, "7.0.0"),
            "Listens to shard channels.",
            "O(N) for N channels",
            "shardchannel [shardchannel ...]",
            ssubscribe,
        )
    },
    Row {
        keys: SHARD_CHANNELS,
        ..row(
            ("SUNSUBSCRIBE", -1, LISTEN, "7.0.0"),
            "Listens to shard channels, or to all, no more.",
            "O(N) for N channels",
            "[shardchannel [shardchannel ...]]",
            sunsubscribe,
        )
    },
    row(
        ("PUBLISH", 3, PUBLISH, "2.0.0"),
        "Gives a message to all who listen to a channel.",
        "O(N+M) for N clients that listen to it and M patterns of all clients",
        "channel message",
        publish,
    ),
    Row {
        keys: SHARD_CHANNEL,
        ..row(
            ("SPUBLISH", 3, PUBLISH, "7.0.0"),
            "Gives a message to all who listen to a shard channel.",
            "O(N) for N clients that listen to it",
            "shardchannel message",
            spublish,
        )
    },
    container("PUBSUB", Group::PubSub, "2.8.0", "Tells who listens to what."),
    row(
        ("PUBSUB|CHANNELS", -2, LOOK, "2.8.0"),
        "Lists the channels to which somebody listens.",
        "O(N) for N channels",
        "[pattern]",
        channels,
    ),
    row(
        ("PUBSUB|NUMSUB", -2, LOOK, "2.8.0"),
        "Counts those who listen to channels.",
        "O(N) for N channels",
        "[channel [channel ...]]",
        numsub,
    ),
    row(("PUBSUB|NUMPAT", 2, LOOK, "2.8.0"), "Counts the patterns.", "O(1)", "", numpat),
    row(
        ("PUBSUB|SHARDCHANNELS", -2, LOOK, "7.0.0"),
        "Lists the shard channels to which somebody listens.",
        "O(N) for N channels",
        "[pattern]",
        shardchannels,
    ),
    row(
        ("PUBSUB|SHARDNUMSUB", -2, LOOK, "7.0.0"),
        "Counts those who listen to shard channels.",
        "O(N) for N channels",
        "[shardchannel [shardchannel ...]]",
        shardnumsub,
    ),
    row(
        ("PUBSUB|HELP", 2, Flags::LOADING.and(Flags::STALE), "6.2.0"),
        "Lists the subcommands.",
        "O(1)",
        "",
        help,
    ),
];

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    List the channels to which somebody listens, of those that match <pattern>.",
    "NUMPAT",
    "    Count the patterns to which somebody listens.",
    "NUMSUB [<channel> ...]",
    "    Count who listens to these channels; patterns do not count.",
    "SHARDCHANNELS [<pattern>]",
    "    List the shard channels to which somebody listens, of those that match <pattern>.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Count who listens to these shard channels.",
    "HELP",
    "    Print this help.",
];

const fn row(
    (name, arity, flags, since): (&'static str, i32, Flags, &'static str),
    summary: &'static str,
    complexity: &'static str,
    syntax: &'static str,
    run: SessionHandler,
) -> SessionCommand {
    let docs = Docs { group: Group::PubSub, since, summary, complexity, syntax };
    Row { name, arity, flags, keys: &[], locks: Locks::None, docs, run }
}

fn subscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    listen(session, Topic::Channel, args, reply);
    Ok(())
}

fn psubscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    listen(session, Topic::Pattern, args, reply);
    Ok(())
}

fn ssubscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if session.is_in_exec() {
        return Err(command::fixed("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    listen(session, Topic::ShardChannel, args, reply);
    Ok(())
}

fn unsubscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    listen_no_more(session, Topic::Channel, args, reply);
    Ok(())
}

fn punsubscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    listen_no_more(session, Topic::Pattern, args, reply);
    Ok(())
}

fn sunsubscribe(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    listen_no_more(session, Topic::ShardChannel, args, reply);
    Ok(())
}

fn listen(session: &mut Session, topic: Topic, args: Args<'_>, reply: &mut Reply) {
    let kind = match topic {
        Topic::Channel => "subscribe",
        Topic::Pattern => "psubscribe",
        Topic::ShardChannel => "ssubscribe",
    };
    for name in args.from(1).iter() {
        session.subscribe(topic, name);
        confirm(session, topic, kind, Some(name), reply);
    }
}

fn listen_no_more(session: &mut Session, topic: Topic, args: Args<'_>, reply: &mut Reply) {
    let kind = match topic {
        Topic::Channel => "unsubscribe",
        Topic::Pattern => "punsubscribe",
        Topic::ShardChannel => "sunsubscribe",
    };
    if args.len() > 1 {
        args.from(1).iter().for_each(|name| stop(session, topic, kind, name, reply));
        return;
    }
    let names = session.subscriptions.names(topic);
    names.iter().for_each(|name| stop(session, topic, kind, name, reply));
    if names.is_empty() {
        confirm(session, topic, kind, None, reply);
    }
}

/// Ends one subscription, and says so behind all of its messages.
fn stop(session: &mut Session, topic: Topic, kind: &str, name: &[u8], reply: &mut Reply) {
    session.unsubscribe(topic, name);
    // In a transaction they would stand among its replies, and without replies the confirmation goes the
    // way of the messages.
    if session.reply_mode == ReplyMode::On && !session.is_in_exec() {
        session.take_pushes(reply, usize::MAX);
    }
    confirm(session, topic, kind, Some(name), reply);
}

fn confirm(session: &Session, topic: Topic, kind: &str, name: Option<&[u8]>, reply: &mut Reply) {
    let count = session.subscriptions.count(topic);
    session.push(reply, |reply| {
        reply.push(3);
        reply.bulk(kind.as_bytes());
        match name {
            Some(name) => reply.bulk(name),
            None => reply.null(),
        }
        reply.integer(count as i64);
    });
}

fn publish(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let receivers = session.worker.publish(&args[1], &args[2]);
    reply.integer(receivers as i64);
    Ok(())
}

fn spublish(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    let from = Some(session.worker.index);
    let server = session.server();
    let receivers = server.pubsub.publish_to_shard(server, from, &args[1], &args[2]);
    reply.integer(receivers as i64);
    Ok(())
}

fn channels(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    list(session, Topic::Channel, args, reply)
}

fn shardchannels(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    list(session, Topic::ShardChannel, args, reply)
}

fn list(session: &Session, topic: Topic, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    if args.len() > 3 {
        return Err(wrong_subcommand("PUBSUB", &args[1]));
    }
    let server = session.server();
    let mut names = server.pubsub.names(topic);
    if let Some(pattern) = args.get(2) {
        names.retain(|name| glob::matches(pattern, name, glob::Case::Sensitive));
    }
    let size = |name: &Arc<[u8]>| (name.len() + size_of::<Arc<[u8]>>()) as u64;
    let bytes: u64 = names.iter().map(size).sum();
    if bytes > request_bytes_max(server) {
        return Err(CommandError::owned(refusal(server, bytes)));
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn numsub(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(session, Topic::Channel, args, reply);
    Ok(())
}

fn shardnumsub(session: &mut Session, args: Args<'_>, reply: &mut Reply) -> CommandResult {
    count(session, Topic::ShardChannel, args, reply);
    Ok(())
}

fn count(session: &Session, topic: Topic, args: Args<'_>, reply: &mut Reply) {
    let names = args.from(2);
    reply.array(2 * names.len());
    for name in names.iter() {
        reply.bulk(name);
        reply.integer(session.server().pubsub.subscribers(topic, name) as i64);
    }
}

fn numpat(session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    reply.integer(session.server().pubsub.len(Topic::Pattern) as i64);
    Ok(())
}

fn help(_session: &mut Session, _args: Args<'_>, reply: &mut Reply) -> CommandResult {
    write_help(HELP, reply)
}
