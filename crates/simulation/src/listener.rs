//! Clients that listen to channels, and whether they were told all that was published, in its order.

use std::collections::{BTreeMap, BTreeSet};

use crate::checker::Event;
use crate::command::{Command, Operation};
use crate::reply::Reply;
use crate::wire::ClientEnd;

/// Channels that clients publish on.
pub(crate) const CHANNELS: [&str; 2] = ["news", "weather"];
/// What each listener sends, by its place: a channel, a pattern, a channel again.
const REQUESTS: [&[&str]; 3] =
    [&["SUBSCRIBE", CHANNELS[0]], &["PSUBSCRIBE", "*"], &["SUBSCRIBE", CHANNELS[1], CHANNELS[0]]];

/// A number that was published on a channel. Each is published once, and a client's rise.
type Message = (String, u64);

/// A client that only listens.
pub(crate) struct Listener {
    pub(crate) wire: ClientEnd,
    /// Confirmations that have not come yet.
    unconfirmed: usize,
    /// Channels that it listens to.
    channels: Vec<&'static str>,
    heard: Vec<Message>,
}

impl Listener {
    /// The listener of a place: it has asked.
    pub(crate) fn new(wire: ClientEnd, place: usize) -> Listener {
        let request = REQUESTS[place % REQUESTS.len()];
        let mut bytes = Vec::new();
        Command::other(request).write(&mut bytes);
        wire.send(&bytes);
        let is_heard = |name: &&str| request[0] == "PSUBSCRIBE" || request.contains(name);
        let channels = CHANNELS.into_iter().filter(is_heard).collect();
        Listener { wire, unconfirmed: request.len() - 1, channels, heard: Vec::new() }
    }

    /// Whether it has been told that it listens.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.unconfirmed == 0
    }

    /// Takes what has come. False: nothing has. Errors: it is no message.
    pub(crate) fn receive(&mut self) -> Result<bool, String> {
        let mut any = false;
        while let Some(answer) = self.wire.receive()? {
            any = true;
            let Reply::Array(parts) = &answer.reply else {
                return Err(format!("a listener was sent {:?}", answer.reply));
            };
            let texts = parts.iter().map(|part| match part {
                Reply::Bulk(value) => String::from_utf8_lossy(value.bytes()).into_owned(),
                other => format!("{other:?}"),
            });
            let texts: Vec<String> = texts.collect();
            match texts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["subscribe" | "psubscribe", ..] if self.unconfirmed > 0 => self.unconfirmed -= 1,
                ["message", channel, number] | ["pmessage", "*", channel, number]
                    if self.channels.contains(channel) =>
                {
                    let number =
                        number.parse().map_err(|_| format!("a listener heard {number}"))?;
                    self.heard.push(((*channel).to_owned(), number));
                }
                _ => return Err(format!("a listener was sent {texts:?}")),
            }
        }
        Ok(any)
    }
}

/// What one connection published, in its order, and how many it was told that each was for; none: it was
/// told nothing.
fn published(history: &[Event]) -> Vec<(Message, Option<i64>)> {
    let mut published = Vec::new();
    for event in history {
        let reply = event.answered.as_ref().map(|(_, reply)| reply);
        let replies: Vec<Option<&Reply>> = match (&event.operation, reply) {
            (Operation::Single(_), reply) => vec![reply],
            (Operation::Transaction(_), Some(Reply::Array(replies))) => {
                replies.iter().map(Some).collect()
            }
            // It did not run.
            (Operation::Transaction(_), Some(_)) => Vec::new(),
            (Operation::Transaction(commands), None) => vec![None; commands.len()],
        };
        for (command, reply) in event.operation.commands().iter().zip(replies) {
            let Some(message) = message(command) else { continue };
            match reply {
                Some(Reply::Integer(count)) => published.push((message, Some(*count))),
                None => published.push((message, None)),
                // It was refused.
                Some(_) => {}
            }
        }
    }
    published
}

fn message(command: &Command) -> Option<Message> {
    let Command::Other(words) = command else { return None };
    let [name, channel, number] = words.as_slice() else { return None };
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let number = text(number).parse().ok()?;
    (name == b"PUBLISH").then(|| (text(channel), number))
}

/// Looks whether each listener heard what was published, all of it if its connection still is, in the order
/// of each client, and as the others did. Returns how many messages were heard.
///
/// Errors: what is wrong.
pub(crate) fn check(listeners: &[Listener], histories: &[Vec<Event>]) -> Result<u64, String> {
    let published: Vec<_> = histories.iter().map(|history| published(history)).collect();
    let all: BTreeSet<&Message> = published.iter().flatten().map(|(message, _)| message).collect();
    let are_whole = listeners.iter().all(|listener| !listener.wire.is_over());
    for (message, count) in published.iter().flatten() {
        let hears = |one: &&Listener| one.channels.contains(&message.0.as_str());
        let expected = listeners.iter().filter(hears).count() as i64;
        if are_whole && count.is_some_and(|count| count != expected) {
            return Err(format!("{message:?} was for {count:?} clients, and {expected} listen"));
        }
    }
    let mut orders: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (place, listener) in listeners.iter().enumerate() {
        if let Some(unknown) = listener.heard.iter().find(|message| !all.contains(message)) {
            return Err(format!("listener {place} heard {unknown:?}, which nobody published"));
        }
        for history in &published {
            check_one(listener, history).map_err(|error| format!("listener {place}: {error}"))?;
        }
        for channel in &listener.channels {
            let is_on = |message: &&Message| message.0 == *channel;
            let heard: Vec<u64> = listener.heard.iter().filter(is_on).map(|one| one.1).collect();
            let order = orders.entry(channel).or_default();
            let common = order.len().min(heard.len());
            if order[..common] != heard[..common] {
                return Err(format!("listener {place} heard {heard:?} and another {order:?}"));
            }
            if heard.len() > order.len() {
                *order = heard;
            }
        }
    }
    Ok(listeners.iter().map(|listener| listener.heard.len() as u64).sum())
}

/// Looks for what one connection published in what a listener heard.
fn check_one(listener: &Listener, published: &[(Message, Option<i64>)]) -> Result<(), String> {
    let own: BTreeSet<&Message> = published.iter().map(|(message, _)| message).collect();
    let heard: Vec<&Message> = listener.heard.iter().filter(|one| own.contains(one)).collect();
    if !heard.is_sorted_by_key(|(_, number)| number) {
        return Err(format!("{heard:?} is not in the order of one client"));
    }
    if listener.wire.is_over() {
        return Ok(());
    }
    for (message, count) in published {
        let hears = listener.channels.contains(&message.0.as_str());
        if hears && count.is_some() && !heard.contains(&message) {
            return Err(format!("{message:?} was lost"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::SimClock;
    use crate::wire::{self, ServerEnd};

    type Heard = [(&'static str, u64)];

    /// A listener that has heard these, and the server's end of its connection.
    fn heard(place: usize, messages: &Heard) -> (Listener, ServerEnd) {
        let (server_end, client_end) = wire::connect(Arc::new(SimClock::default()));
        let mut listener = Listener::new(client_end, place);
        listener.heard =
            messages.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        (listener, server_end)
    }

    /// The history of a connection that published these, each for so many clients.
    fn history(messages: &[(&str, u64, Option<i64>)]) -> Vec<Event> {
        let event = |(channel, number, count): &(&str, u64, Option<i64>)| Event {
            operation: Operation::Single(Command::other(&[
                "PUBLISH",
                channel,
                &number.to_string(),
            ])),
            sent: *number,
            answered: count.map(|count| (*number + 1, Reply::Integer(count))),
        };
        messages.iter().map(event).collect()
    }

    #[test]
    fn what_is_lost_or_out_of_order_is_seen() {
        let histories = [
            history(&[("news", 1, Some(2)), ("weather", 3, Some(1)), ("news", 4, Some(2))]),
            history(&[("news", 2, Some(2)), ("news", 5, None)]),
        ];
        let first: &Heard = &[("news", 2), ("news", 1), ("news", 4)];
        let cases: [(&Heard, Option<&str>); 8] = [
            (&[("news", 2), ("news", 1), ("weather", 3), ("news", 4)], None),
            (&[("weather", 3), ("news", 2), ("news", 1), ("news", 4)], Some("order")),
            (&[("news", 2), ("weather", 3), ("news", 1), ("news", 4)], Some("order")),
            (&[("news", 1), ("news", 2), ("weather", 3), ("news", 4)], Some("another")),
            (&[("news", 2), ("news", 1), ("news", 4)], Some("lost")),
            (&[("news", 2), ("news", 1), ("weather", 3)], Some("lost")),
            (&[("news", 2), ("news", 1), ("weather", 3), ("news", 4), ("news", 7)], Some("nobody")),
            (&[("news", 2), ("news", 1), ("weather", 3), ("news", 4), ("news", 5)], None),
        ];
        for (messages, expected) in cases {
            let ((one, _one), (two, _two)) = (heard(0, first), heard(1, messages));
            let found = check(&[one, two], &histories);
            match expected {
                None => assert_eq!(found, Ok((first.len() + messages.len()) as u64)),
                Some(text) => {
                    assert!(found.as_ref().is_err_and(|why| why.contains(text)), "{found:?}");
                }
            }
        }
        let (one, _one) = heard(0, first);
        assert!(check(&[one], &histories).is_err_and(|why| why.contains("2)")), "one listens");
    }
}
