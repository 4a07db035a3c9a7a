//! The loads: a fill, overwrites, overwrites with other sizes, a skewed cache.

use stdx::Random;

use crate::Values;
use crate::index::{Index, RECORD_BYTES};

/// Operations a key, of each load behind the fill.
const ROUNDS: usize = 2;

pub(crate) fn run(kind: &str, mut values: Box<dyn Values>, keys: usize, bytes: usize) {
    let mut random = Random::new(1);
    let value = vec![7u8; 2 * bytes];
    // Keys are numbered in the order of their hashes, so they come in another.
    let step = (keys * 618 / 1000..).find(|&step| is_coprime(step, keys)).expect("there is one");
    let shown = |load: &str, operations: usize, start: u64, index: &Index| {
        show(kind, bytes, load, (cpu_ns() - start) as f64 / operations as f64, index);
    };

    let start = cpu_ns();
    (0..keys).for_each(|number| values.set(number * step % keys, &value[..bytes]));
    shown("fill", keys, start, values.index());

    let operations = ROUNDS * keys;
    let start = cpu_ns();
    (0..operations).for_each(|_| values.set(random.below(keys as u64) as usize, &value[..bytes]));
    shown("overwrite", operations, start, values.index());

    let start = cpu_ns();
    for _ in 0..operations {
        let key = random.below(keys as u64) as usize;
        values.set(key, &value[..bytes / 2 + random.below(bytes as u64) as usize]);
    }
    shown("overwrite, other sizes", operations, start, values.index());

    let zipf = Zipf::new(keys as f64, 0.99);
    let (mut hits, mut start) = (0, 0);
    for number in 0..2 * operations {
        if number == operations {
            (hits, start) = (0, cpu_ns());
        }
        let key = zipf.draw(&mut random).wrapping_mul(step) % keys;
        match values.get(key) {
            true => hits += 1,
            false => values.set(key, &value[..bytes]),
        }
    }
    shown("read-through, Zipf", operations, start, values.index());
    println!("{kind:8} {bytes:5} B  hit ratio {:.2} %", 100.0 * hits as f64 / operations as f64);
}

fn show(kind: &str, bytes: usize, load: &str, ns: f64, index: &Index) {
    let resident = index.resident() as f64;
    let others = resident - (index.len() * RECORD_BYTES) as f64;
    println!(
        "{kind:8} {bytes:5} B  {load:22} {ns:6.0} ns  resident {:.3}x  in RAM {:4.1} %  \
         values {:.3} of the rest  demoted {:9}  moved {:9}  slice {:6.2} ms",
        resident / index.budget as f64,
        100.0 * index.values as f64 / index.len() as f64,
        index.value_bytes as f64 / others,
        index.demoted,
        index.moved,
        index.slice_max.as_secs_f64() * 1e3,
    );
}

/// CPU time of the process, in nanoseconds.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn is_coprime(one: usize, two: usize) -> bool {
    if two == 0 { one == 1 } else { is_coprime(two, one % two) }
}

/// Zipf's law by inversion (Gray et al. 1994).
struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: f64, theta: f64) -> Zipf {
        let zeta_of = |count: f64| (1..=count as u64).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count).powf(1.0 - theta)) / (1.0 - zeta_of(2.0) / zeta);
        Zipf { count, theta, zeta, eta }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let unit = random.fraction();
        let scaled = unit * self.zeta;
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return usize::from(scaled >= 1.0);
        }
        let alpha = 1.0 / (1.0 - self.theta);
        (self.count * (self.eta * unit - self.eta + 1.0).powf(alpha)) as usize
    }
}
