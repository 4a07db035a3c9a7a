//! Which node of a cluster has which slot, and how the nodes tell.
//!
//! The map is read from CLUSTER SLOTS, or CLUSTER SHARDS of a server that has no SLOTS; MOVED corrects
//! it slot by slot. Each thread has its own copy.

use crate::LoadError;
use crate::session::{ask, open_blocking};
use crate::target::{Address, Target};
use resp::Frame;
use stdx::SLOT_COUNT;

/// Most nodes of a cluster.
pub const NODES_MAX: usize = 1024;

/// The owner of each slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotMap {
    owners: Vec<u16>,
    nodes: Vec<Address>,
}

/// What a node answers about a slot that it does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Whether only this request goes elsewhere (ASK); else the slot has moved.
    pub once: bool,
    /// The slot.
    pub slot: u16,
    /// Where it is.
    pub node: Address,
}

/// Slots from the first to the last, and the node that has them.
type Span = (u16, u16, Address);

impl SlotMap {
    /// The nodes; they are never removed, so an index stays what it is.
    pub fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// The index of the node that has `slot`.
    pub fn owner(&self, slot: u16) -> usize {
        usize::from(self.owners[usize::from(slot)])
    }

    /// Obeys a redirection; returns the index of the node to go to, none when there are too many
    /// nodes.
    pub fn follow(&mut self, redirect: &Redirect) -> Option<usize> {
        let node = self.index_of(&redirect.node)?;
        if !redirect.once {
            self.owners[usize::from(redirect.slot)] = node;
        }
        Some(usize::from(node))
    }

    fn index_of(&mut self, node: &Address) -> Option<u16> {
        let known = self.nodes.iter().position(|known| known == node);
        let index = known.or_else(|| {
            (self.nodes.len() < NODES_MAX).then(|| {
                self.nodes.push(node.clone());
                self.nodes.len() - 1
            })
        })?;
        u16::try_from(index).ok()
    }

    /// The map of these spans; slots that nobody has are asked of the first node, which will say.
    fn new(spans: &[Span]) -> Option<Self> {
        let mut map = Self { owners: vec![0; SLOT_COUNT], nodes: Vec::new() };
        for (first, last, node) in spans {
            let index = map.index_of(node)?;
            map.owners.get_mut(usize::from(*first)..=usize::from(*last))?.fill(index);
        }
        (!map.nodes.is_empty()).then_some(map)
    }
}

/// What the server says of its cluster.
pub enum Discovery {
    /// It is one.
    Cluster(SlotMap),
    /// It is a server by itself, because of this.
    Single(String),
}

/// Asks the server for its slots.
///
/// Errors: when it cannot be reached, or says what cannot be understood.
pub fn discover(target: &Target) -> Result<Discovery, LoadError> {
    let connect = |source| LoadError::Connect { address: target.address.to_string(), source };
    let mut stream = open_blocking(target, &target.address).map_err(connect)?;
    let mut reason = String::new();
    for question in ["SLOTS", "SHARDS"] {
        let reply =
            ask(&mut stream, &["CLUSTER", question]).map_err(|error| connect(error.into()))?;
        let spans = match reply {
            Frame::Error(text) => {
                reason = String::from_utf8_lossy(&text).into_owned();
                continue;
            }
            Frame::Array(entries) if question == "SLOTS" => parse_slots(&entries, &target.address),
            Frame::Array(entries) => parse_shards(&entries, &target.address),
            _ => None,
        };
        return match spans.as_deref().map(SlotMap::new) {
            Some(Some(map)) => Ok(Discovery::Cluster(map)),
            _ => Err(LoadError::Cluster(question)),
        };
    }
    Ok(Discovery::Single(reason))
}

/// Reads CLUSTER SLOTS: an entry is first slot, last slot, the primary, its replicas.
fn parse_slots(entries: &[Frame], asked: &Address) -> Option<Vec<Span>> {
    let span = |entry: &Frame| {
        let Frame::Array(entry) = entry else { return None };
        let Frame::Array(node) = entry.get(2)? else { return None };
        let node = address(node.first()?, integer(node.get(1)?)?, asked)?;
        Some((slot(entry.first()?)?, slot(entry.get(1)?)?, node))
    };
    entries.iter().map(span).collect()
}

/// Reads CLUSTER SHARDS: an entry has pairs of slots and its nodes, one of them the master.
fn parse_shards(entries: &[Frame], asked: &Address) -> Option<Vec<Span>> {
    let mut spans = Vec::new();
    for entry in entries {
        let Frame::Array(slots) = field(entry, "slots")? else { return None };
        let Frame::Array(nodes) = field(entry, "nodes")? else { return None };
        let is_master = |node: &&Frame| text(field(node, "role")).as_deref() == Some("master");
        let Some(master) = nodes.iter().find(is_master) else { continue };
        let port = field(master, "tls-port").or_else(|| field(master, "port"))?;
        let host = field(master, "endpoint").or_else(|| field(master, "ip"))?;
        let node = address(host, integer(port)?, asked)?;
        for pair in slots.chunks_exact(2) {
            spans.push((slot(&pair[0])?, slot(&pair[1])?, node.clone()));
        }
    }
    Some(spans)
}

/// The value of a field of a map, in RESP3, or of a list of names and values, in RESP2.
fn field<'a>(map: &'a Frame, name: &str) -> Option<&'a Frame> {
    let is_name = |frame: &Frame| text(Some(frame)).as_deref() == Some(name);
    match map {
        Frame::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
        Frame::Array(list) => {
            list.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1])
        }
        _ => None,
    }
}

fn text(frame: Option<&Frame>) -> Option<String> {
    match frame? {
        Frame::Bulk(bytes) | Frame::Simple(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

fn integer(frame: &Frame) -> Option<i64> {
    match frame {
        Frame::Integer(number) => Some(*number),
        _ => None,
    }
}

fn slot(frame: &Frame) -> Option<u16> {
    let slot = u16::try_from(integer(frame)?).ok()?;
    (usize::from(slot) < SLOT_COUNT).then_some(slot)
}

/// The address of a node; one that does not know its own host is where the question was asked.
fn address(host: &Frame, port: i64, asked: &Address) -> Option<Address> {
    let host = match host {
        Frame::NullBulk | Frame::Null => String::new(),
        host => text(Some(host))?,
    };
    node_address(&host, u16::try_from(port).ok()?, asked)
}

fn node_address(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        ("" | "?", Address::Tcp(host, _)) => Some(Address::Tcp(host.clone(), port)),
        ("" | "?", Address::Unix(_)) => None,
        _ => Some(Address::Tcp(host.to_owned(), port)),
    }
}

impl Redirect {
    /// Reads the text of an error reply, `MOVED 3999 127.0.0.1:6381`, that the node at `asked`
    /// sent; none when it is another error.
    pub fn parse(text: &[u8], asked: &Address) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split(' ');
        let once = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|slot| usize::from(*slot) < SLOT_COUNT)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let node = node_address(host, port.parse().ok()?, asked)?;
        Some(Self { once, slot, node })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Address {
        Address::Tcp("a".to_owned(), port)
    }

    fn frames(encoded: &str) -> Vec<Frame> {
        let bytes = encoded.replace(' ', "\r\n");
        match resp::parse_frame(bytes.as_bytes()) {
            Ok(Some((Frame::Array(frames), _))) => frames,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn slots_and_shards_say_the_same() {
        let asked = node(1);
        let slots = "*2 *3 :0 :99 *2 $1 a :1 *4 :100 :16383 *2 $-1 :2 *2 $1 b :3 ";
        let shards = "*2 *4 $5 slots *2 :0 :99 $5 nodes *1 *6 $8 endpoint $1 a $4 port :1 \
                      $4 role $6 master \
                      *4 $5 slots *2 :100 :16383 $5 nodes *2 *6 $8 endpoint $1 b $4 port :3 \
                      $4 role $7 replica \
                      %3 $8 endpoint $1 a $4 port :2 $4 role $6 master ";
        let expected = vec![(0, 99, node(1)), (100, 16383, node(2))];
        assert_eq!(parse_slots(&frames(slots), &asked), Some(expected.clone()));
        assert_eq!(parse_shards(&frames(shards), &asked), Some(expected.clone()));
        let map = SlotMap::new(&expected).expect("a map");
        assert_eq!([map.owner(0), map.owner(99), map.owner(100)], [0, 0, 1]);
    }

    #[test]
    fn redirections_are_read_and_followed() {
        let asked = node(1);
        let parse = |text: &str| Redirect::parse(text.as_bytes(), &asked);
        let moved = parse("MOVED 5 a:2").expect("a redirection");
        assert_eq!(moved, Redirect { once: false, slot: 5, node: node(2) });
        let ask = parse("ASK 6 :3").expect("a redirection");
        assert_eq!(ask, Redirect { once: true, slot: 6, node: node(3) });
        for text in
            ["ERR no", "MOVED", "MOVED x a:1", "MOVED 16384 a:1", "MOVED 1 a", "MOVED 1 a:x"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        let mut map = SlotMap::new(&[(0, 16383, node(1))]).expect("a map");
        assert_eq!(map.follow(&moved), Some(1));
        assert_eq!(map.follow(&ask), Some(2));
        assert_eq!([map.owner(4), map.owner(5), map.owner(6)], [0, 1, 0]);
    }

    #[test]
    fn a_map_without_nodes_or_with_slots_out_of_range_is_none() {
        assert_eq!(SlotMap::new(&[]), None);
        assert_eq!(SlotMap::new(&[(0, 16384, node(1))]), None);
        assert_eq!(parse_slots(&frames("*1 *2 :0 :1 "), &node(1)), None);
        assert_eq!(parse_slots(&frames("*1 *3 :0 :16384 *2 $1 a :1 "), &node(1)), None);
    }
}
