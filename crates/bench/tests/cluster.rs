//! `--cluster-mode` against clusters of redis-server: slots, redirections, and a server that is none.

mod support;

use bench::{Control, Options, Report};
use std::time::Duration;
use support::real::Real;
use support::{load, until};

/// Starts nodes that have divided all slots among themselves.
fn cluster(count: usize) -> Vec<Real> {
    let more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    let nodes: Vec<Real> = (0..count).map(|_| Real::start(&more)).collect();
    for (index, node) in nodes.iter().enumerate() {
        let (first, last) = (16384 * index / count, 16384 * (index + 1) / count - 1);
        let range = [first.to_string(), last.to_string()];
        assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]), "OK");
        let epoch = (index + 1).to_string();
        node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        node.cli(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()]);
    }
    let agreed = |node: &Real| {
        let info = node.cli(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
    };
    until("the nodes agree", || nodes.iter().all(agreed));
    // From now on no node is to take another for dead because the machine is busy.
    for node in &nodes {
        assert_eq!(node.cli(&["CONFIG", "SET", "cluster-node-timeout", "60000"]), "OK");
    }
    nodes
}

fn keys_of(nodes: &[Real]) -> Vec<u64> {
    let size = |node: &Real| node.cli(&["DBSIZE"]).parse().expect("a number");
    nodes.iter().map(size).collect()
}

/// A thousand keys.
const KEYS: &str = "--cluster-mode --key-minimum 1 --key-maximum 1000 -n allkeys -c 3 -t 2 \
                    --key-pattern P:P";

fn moved(report: &Report) -> u64 {
    report.stats().totals().moved
}

#[test]
fn one_node_with_all_slots() {
    let nodes = cluster(1);
    let report = load(nodes[0].port, &format!("{KEYS} --ratio 1:0 --pipeline 4"));
    assert!(report.is_flawless(), "{report}");
    assert_eq!((report.stats().totals().count(), moved(&report)), (1000, 0));
    assert_eq!(keys_of(&nodes), [1000]);
}

#[test]
fn keys_go_to_the_node_that_has_their_slot() {
    let nodes = cluster(3);
    for way in ["--pipeline 1", "--pipeline 8", "--rate 20000", "--reconnect-interval 50"] {
        nodes.iter().for_each(|node| drop(node.cli(&["FLUSHALL"])));
        let report = load(nodes[0].port, &format!("{KEYS} --ratio 1:0 {way}"));
        assert!(report.is_flawless(), "{way}: {report}");
        assert_eq!((report.stats().totals().count(), moved(&report)), (1000, 0), "{way}");
        let sizes = keys_of(&nodes);
        assert_eq!(sizes.iter().sum::<u64>(), 1000);
        assert!(sizes.iter().all(|size| *size > 250), "{sizes:?}");
        let read = load(nodes[1].port, &format!("{KEYS} --ratio 0:1 --verify {way}"));
        assert!(read.is_flawless(), "{way}: {read}");
    }
    // While a slot is being moved the node that had it answers ASK for keys that it has not.
    let slot = nodes[0].cli(&["CLUSTER", "KEYSLOT", "memtier-5"]);
    let owner = usize::from(slot.parse::<u16>().expect("a slot")) * 3 / 16384;
    let (source, target) = (&nodes[owner], &nodes[(owner + 1) % 3]);
    let (source_id, target_id) =
        (source.cli(&["CLUSTER", "MYID"]), target.cli(&["CLUSTER", "MYID"]));
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    source.cli(&["DEL", "memtier-5"]);
    let report = load(nodes[0].port, &format!("{KEYS} --ratio 1:0"));
    assert!(report.is_flawless(), "{report}");
    assert_eq!((report.stats().totals().asked, moved(&report)), (1, 0));
    // The slot moves while a load runs: its clients learn of it by MOVED.
    let running = std::thread::scope(|scope| {
        let port = nodes[0].port;
        let line = "--cluster-mode --key-maximum 1000 -c 3 --ratio 1:1 --test-time 5";
        let loading = scope.spawn(move || load(port, line));
        std::thread::sleep(Duration::from_millis(300));
        let target_port = target.port.to_string();
        let to = ["MIGRATE", "127.0.0.1", &target_port, "", "0", "1000", "REPLACE"];
        source.cli(&[&to[..], &["KEYS", "memtier-5"]].concat());
        for node in [target, source] {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
        loading.join().expect("a load")
    });
    assert!(running.is_flawless(), "{running}");
    assert!(moved(&running) > 0, "{running}");
    assert!(running.to_string().contains("MOVED/sec"));
}

#[test]
fn a_server_that_is_no_cluster_is_driven_as_one_node() {
    static REMARKS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let server = Real::start(&[]);
    let line = format!("load -p {} {KEYS} --ratio 1:0", server.port);
    let options = Options::parse(line.split_whitespace()).expect("options");
    let remark = |text: &str| REMARKS.lock().expect("a lock").push(text.to_owned());
    let control = Control { remark: Some(remark), ..Control::default() };
    let report = bench::run_watched(&options, &control).expect("a load");
    assert!(report.is_flawless(), "{report}");
    let remarks = REMARKS.lock().expect("a lock");
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].contains("cluster support disabled"), "{remarks:?}");
}
