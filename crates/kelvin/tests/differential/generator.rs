//! From a seed to a stream of requests on several connections.

use super::commands::{COMMANDS, Command, Rule, SWEEPING, SWEEPING_OWN, Spoilt, TIER, TRANSACTION};
use super::grammar::{Part, Shape};
use super::random::Random;
use super::words;

/// Connections; each turn is sent on one of them.
pub const CONNECTIONS: usize = 4;
/// Requests of one turn.
const TURN_MAX: usize = 600;
/// Bytes of one turn, about.
const TURN_BYTES_MAX: usize = 2 << 20;

/// The words of a request.
pub type Words = Vec<Vec<u8>>;

/// One thing to do.
#[derive(Clone, Debug)]
pub struct Step {
    pub connection: usize,
    /// Neighbours of the same turn are sent in one pipeline.
    pub turn: usize,
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a request to both servers.
    Both(Words, Rule),
    /// Sends a request to Kelvin alone.
    Kelvin(Words),
    /// Walks over all keys with SCAN on both servers.
    Scan(Words),
    /// Compares the digests of the data sets. Nobody may be writing.
    Digest,
}

impl Step {
    /// A comparison of all data, in a turn of its own.
    pub fn digest() -> Step {
        Step { connection: 0, turn: usize::MAX, action: Action::Digest }
    }
}

/// The databases that a stream works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, some more than others.
    All,
    /// Four from this one on, so that several streams can run at once.
    FourFrom(u8),
}

impl Scope {
    fn database(self, random: &mut Random) -> String {
        if random.chance(1, 30) {
            return random.pick(words::BAD_DATABASES).to_owned();
        }
        match self {
            Scope::All => random.pick(&["0", "0", "0", "1", "2", "9", "15"]).to_owned(),
            Scope::FourFrom(first) => (usize::from(first) + random.below(4)).to_string(),
        }
    }
}

/// Writes the stream of one seed.
pub struct Generator {
    random: Random,
    scope: Scope,
    /// Turns that come before all others.
    opening: Vec<Step>,
    turn: usize,
    in_transaction: [bool; CONNECTIONS],
    usual: Menu,
    sweeping: Menu,
    transaction: Menu,
    tier: Menu,
}

struct Menu {
    commands: &'static [Command],
    shapes: Vec<Shape>,
}

impl Menu {
    fn new(commands: &'static [Command]) -> Menu {
        Menu { commands, shapes: commands.iter().map(|one| Shape::parse(one.shape)).collect() }
    }

    fn choose(&self, scope: Scope, random: &mut Random) -> (Words, &'static Command) {
        let weights = self.commands.iter().map(|command| command.weight);
        self.instance(random.weighted(weights), scope, random)
    }

    fn named(&self, name: &str, scope: Scope, random: &mut Random) -> (Words, &'static Command) {
        let index = self.commands.iter().position(|command| command.name == name);
        self.instance(index.expect("a command of the menu"), scope, random)
    }

    fn instance(
        &self,
        index: usize,
        scope: Scope,
        random: &mut Random,
    ) -> (Words, &'static Command) {
        let command = &self.commands[index];
        let mut request = vec![command.name.as_bytes().to_vec()];
        self.shapes[index].write(random, &mut |random, part| match part {
            Part::Word(word) => request.push(word.as_bytes().to_vec()),
            Part::Sort("db") => request.push(scope.database(random).into_bytes()),
            Part::Sort(sort) => words::write(sort, random, &mut request),
        });
        (request, command)
    }
}

impl Generator {
    pub fn new(seed: u64, scope: Scope) -> Generator {
        let (opening, sweeping) = match scope {
            Scope::All => (Vec::new(), SWEEPING),
            Scope::FourFrom(first) => (select_everywhere(first), SWEEPING_OWN),
        };
        Generator {
            random: Random::new(seed),
            scope,
            turn: opening.len(),
            opening,
            in_transaction: [false; CONNECTIONS],
            usual: Menu::new(COMMANDS),
            sweeping: Menu::new(sweeping),
            transaction: Menu::new(TRANSACTION),
            tier: Menu::new(TIER),
        }
    }

    /// The next turn: requests for one connection.
    pub fn turn(&mut self) -> Vec<Step> {
        if let Some(step) = self.opening.pop() {
            return vec![step];
        }
        let connection = self.random.below(CONNECTIONS);
        let wanted = match self.random.below(10) {
            0 => 1,
            1..5 => 1 + self.random.below(40),
            _ => 1 + self.random.below(TURN_MAX),
        };
        self.turn += 1;
        let mut turn = Turn { connection, turn: self.turn, steps: Vec::new(), bytes: 0 };
        if self.random.chance(1, 400) && !self.in_transaction[connection] {
            turn.push(Action::Scan(self.walk()));
            return turn.steps;
        }
        while turn.steps.len() < wanted && turn.bytes < TURN_BYTES_MAX {
            self.step(&mut turn);
        }
        turn.steps
    }

    fn walk(&mut self) -> Words {
        let mut request: Words = vec![b"COUNT".to_vec(), b"500".to_vec()];
        if self.random.chance(1, 2) {
            request.push(b"MATCH".to_vec());
            words::write("pattern", &mut self.random, &mut request);
        }
        request
    }

    fn step(&mut self, turn: &mut Turn) {
        let in_transaction = self.in_transaction[turn.connection];
        let (scope, random) = (self.scope, &mut self.random);
        // Kelvin refuses TIER in transactions.
        if !in_transaction && random.chance(1, 20) {
            return turn.push(Action::Kelvin(self.tier.choose(scope, random).0));
        }
        let (request, command) = if in_transaction && random.chance(1, 10) {
            let name = if random.chance(1, 6) { "DISCARD" } else { "EXEC" };
            self.transaction.named(name, scope, random)
        } else if random.chance(1, 60) {
            let name = match random.below(10) {
                0..4 => "WATCH",
                // After a MULTI inside a MULTI, Kelvin's EXEC refuses as Valkey's does.
                4..8 if in_transaction => "UNWATCH",
                4..8 => "MULTI",
                8 => "UNWATCH",
                // Mostly an error.
                _ => "EXEC",
            };
            self.transaction.named(name, scope, random)
        } else if random.chance(1, 12_000) {
            self.sweeping.choose(scope, random)
        } else {
            self.usual.choose(scope, random)
        };
        // An edge may be the number of somebody else's database.
        let request = match scope == Scope::All || !command.shape.contains("<db>") {
            true => distort(request, command, random),
            false => request,
        };
        match request[0].to_ascii_uppercase().as_slice() {
            b"MULTI" if request.len() == 1 => self.in_transaction[turn.connection] = true,
            b"EXEC" | b"DISCARD" | b"RESET" if request.len() == 1 => {
                self.in_transaction[turn.connection] = false;
            }
            _ => {}
        }
        let follow_up = follow_up(&request);
        turn.push(Action::Both(request, command.rule));
        if let Some(request) = follow_up {
            turn.push(Action::Both(request, Rule::Exact));
        }
    }
}

struct Turn {
    connection: usize,
    turn: usize,
    steps: Vec<Step>,
    bytes: usize,
}

impl Turn {
    fn push(&mut self, action: Action) {
        if let Action::Both(words, _) | Action::Kelvin(words) | Action::Scan(words) = &action {
            self.bytes += words.iter().map(Vec::len).sum::<usize>();
        }
        self.steps.push(Step { connection: self.connection, turn: self.turn, action });
    }
}

/// Selects a database on every connection, each a turn of its own.
fn select_everywhere(db: u8) -> Vec<Step> {
    let select = |connection| {
        let words = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
        Step { connection, turn: connection, action: Action::Both(words, Rule::Exact) }
    };
    (0..CONNECTIONS).map(select).collect()
}

/// Spoils some requests: arguments missing, doubled, at the edge of what is allowed, in lower case.
fn distort(mut request: Words, command: &Command, random: &mut Random) -> Words {
    if command.spoilt == Spoilt::Never || !random.chance(1, 30) {
        return request;
    }
    let (index, whole) = (random.below(request.len()), request.clone());
    match random.below(6) {
        0 if request.len() > 1 => {
            request.remove(index.max(1));
        }
        1 => request.insert(index + 1, request[index].clone()),
        2 => request.push(edge(command, random)),
        3 if index > 0 => request[index] = edge(command, random),
        _ => request[index].make_ascii_lowercase(),
    }
    // The key `*`, twice, would be one and an ID of the time.
    let is_of_time =
        command.name == "XADD" && request[2.min(request.len())..].contains(&b"*".to_vec());
    if is_of_time { whole } else { request }
}

fn edge(command: &Command, random: &mut Random) -> Vec<u8> {
    let edges = match command.spoilt {
        Spoilt::NotBySmallNumbers => words::EDGES_OF_TIME,
        Spoilt::Anyhow | Spoilt::Never => words::EDGES,
    };
    random.pick(edges).as_bytes().to_vec()
}

/// A SET with a time that has passed leaves a key that Redis counts in DBSIZE until somebody meets
/// it: meet it at once.
fn follow_up(request: &Words) -> Option<Words> {
    let is_set = request[0].eq_ignore_ascii_case(b"SET");
    let has_time = request.iter().any(|word| {
        let word = word.to_ascii_uppercase();
        matches!(word.as_slice(), b"EXAT" | b"PXAT")
    });
    (is_set && has_time && request.len() > 4).then(|| vec![b"EXISTS".to_vec(), request[1].clone()])
}
