//! Nodes of large collections that have no key any more.

use keyspace::{Db, DetachedTree, SlotState, Stored, Tally, node_table};
use value::Kind;
use value::leaf::branch::{Branch, Root};

use crate::collection::place::NodeName;

/// Nodes of a collection that are still to be freed.
pub struct DetachedNodes {
    nodes: Vec<NodeName>,
}

impl DetachedNodes {
    pub(super) fn of(root: Root<'_>) -> DetachedNodes {
        let id = root.id();
        let mut nodes: Vec<NodeName> =
            root.branch().children().map(|child| NodeName::new(id, child.node)).collect();
        if !root.is_part() {
            nodes.push(NodeName::of_index_root(id));
        }
        DetachedNodes { nodes }
    }

    /// Those of a collection that has no key any more.
    pub fn of_detached(tree: &DetachedTree) -> DetachedNodes {
        DetachedNodes::of(Root::new(&tree.root))
    }

    /// Frees some nodes, `nodes_max` at most, in a slot and beside a table of keys. Returns whether all
    /// are gone.
    pub fn free_some(
        &mut self,
        slot: &mut SlotState,
        (slot_number, table): (u16, u8),
        now_ms: u64,
        tally: &mut Tally,
        nodes_max: usize,
    ) -> bool {
        for _ in 0..nodes_max {
            let Some(name) = self.nodes.pop() else { break };
            let key = name.key(slot_number);
            // A FLUSH may have taken it, and most collections have no index.
            let Some(view) = slot.view(node_table(table), &key) else { continue };
            if let Stored::Hot(bytes) = view.stored
                && Kind::from_bits(view.kind).is_tree()
            {
                let branch =
                    if name.is_root() { Root::new(bytes).branch() } else { Branch::new(bytes) };
                self.nodes.extend(branch.children().map(|child| name.sibling(child.node)));
            }
            Db::new(slot, node_table(table), now_ms, tally).remove(&key);
        }
        self.nodes.is_empty()
    }
}
