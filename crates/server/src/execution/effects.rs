//! What becomes of what a run has reported, while its slots are still held: changes are journaled, keys that clients
//! wait for are marked, and keyspace notifications published. So those of a key come in the order of its changes.

use std::io::Write;
use std::sync::{Arc, Weak};

use command::{Classes, Cx, Effect, Effects, Event, Record};
use keyspace::{Note, Noting};
use resp::Args;
use tier::Listener;

use crate::execution::journal::{journal_gone, journal_run};
use crate::state::server::Server;
use crate::state::worker::Worker;

/// Takes what a run has reported. What is to be journaled of a run in a transaction goes into the record of that. One
/// that is to be run again (`is_over` is false) has done nothing but remove keys whose time had come.
#[cold]
pub(super) fn take_effects<'r>(
    worker: &Worker,
    cx: &mut Cx<'_, '_>,
    (args, record): (Args<'r>, Option<&mut Record<'r>>),
    is_over: bool,
) {
    let server = &*worker.server;
    cx.effects.take_notes(&server.tier.keyspace, &mut cx.tally.notes);
    if !is_over {
        cx.effects.take_back();
    }
    if cx.effects.listened.has(Classes::LOGGED) {
        match record {
            Some(record) => cx.effects.log(cx.db, args, record),
            None => journal_run(worker, cx, args),
        }
    }
    hear(server, Some(worker.index), cx.effects.noted());
}

/// Has a server hear of keys that expire and are evicted.
pub(crate) fn hear_keyspace(server: &Arc<Server>) {
    server.tier.set_listener(Box::new(OfKeyspace(Arc::downgrade(server))));
}

struct OfKeyspace(Weak<Server>);

impl Listener for OfKeyspace {
    fn noting(&self) -> Noting {
        let server = self.0.upgrade();
        server.map(|server| server.listening.classes().noting()).unwrap_or_default()
    }

    fn hear(&self, notes: &mut Vec<Note>) {
        let Some(server) = self.0.upgrade() else { return };
        let mut effects = Effects::new(server.listening.classes(), true);
        effects.take_notes(&server.tier.keyspace, notes);
        if effects.listened.has(Classes::LOGGED) {
            journal_gone(&server, &effects);
        }
        hear(&server, None, effects.noted());
    }
}

fn hear(server: &Server, worker: Option<usize>, effects: &[Effect]) {
    let listened = server.listening.classes();
    for effect in effects {
        let classes = effect.event.classes;
        if classes.has(Classes::WAITED) && listened.has(Classes::WAITED) {
            match effect.event {
                Event::SWAPDB | Event::FLUSHED => server.waiters.mark_all_ready(effect.db),
                _ => server.waiters.mark_ready(effect.db, &effect.key),
            }
        }
        if classes.without(Classes::WAITED).has(listened) && server.pubsub.is_heard() {
            notify(server, worker, listened, effect);
        }
    }
}

/// Publishes a notification by key, and by the name of the event.
fn notify(server: &Server, worker: Option<usize>, listened: Classes, effect: &Effect) {
    let Effect { db, key, event } = effect;
    let name = event.name.as_bytes();
    for (class, kind, subject, message) in
        [(Classes::BY_KEY, "keyspace", &**key, name), (Classes::BY_EVENT, "keyevent", name, &**key)]
    {
        if listened.has(class) {
            let mut channel = Vec::with_capacity(24 + subject.len());
            write!(channel, "__{kind}@{db}__:").expect("invariant: memory takes all");
            channel.extend_from_slice(subject);
            server.pubsub.publish(server, worker, &channel, message);
        }
    }
}
