//! The answer of `kelvin plan size`, and how it is printed: one row a figure, the tiered
//! deployment beside the one in RAM.

use serde::Serialize;

use crate::rounded;
use crate::table::Table;
use crate::units::{show_bytes, show_count, show_share};

/// Two deployments for one data set.
#[derive(Debug, Clone, Serialize)]
pub struct Sizing {
    /// What is to be held.
    pub data: Data,
    /// Keys in RAM, values in RAM and on flash.
    pub tiered: Deployment,
    /// All in RAM.
    pub all_ram: Deployment,
    /// RAM of the one in RAM for each byte of the tiered one's.
    pub ram_saving: f64,
    /// The same of the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_saving: Option<f64>,
}

/// What is to be held.
#[derive(Debug, Clone, Serialize)]
pub struct Data {
    /// Without replicas.
    pub keys: f64,
    /// Of one key.
    pub key_bytes: u64,
    /// Of one value, on average.
    pub value_bytes: f64,
    /// Of each key, itself included.
    pub copies: f64,
    /// Keys and values, of all copies.
    pub bytes: f64,
    /// Warranty of the drives.
    pub warranty_years: f64,
}

/// What it takes. Sums are over all nodes, replicas included.
#[derive(Debug, Clone, Serialize)]
pub struct Deployment {
    /// `maxmemory` of all servers.
    pub ram_bytes: f64,
    /// `flash-size` of all servers.
    pub flash_bytes: f64,
    /// Machines.
    pub nodes: f64,
    /// Servers, replicas included; as many on each node.
    pub shards: f64,
    /// RAM for a copy of a key.
    pub ram_per_key_bytes: f64,
    /// Share of the values, from 0 to 1.
    pub values_in_ram: f64,
    /// Share of reads that RAM serves, in a steady state.
    pub hit_ratio: f64,
    /// Share of the flash that records fill.
    pub flash_fill: Option<f64>,
    /// Reads that flash serves.
    pub flash_reads_per_second: f64,
    /// What all drives together write, garbage collection included.
    pub flash_write_bytes_per_second: f64,
    /// Bytes written to drives for each byte that is demoted.
    pub write_amplification: Option<f64>,
    /// The drives; none where there is no flash.
    pub drives: Option<Drives>,
    /// In the currency of the prices; none where there are none.
    pub cost: Option<f64>,
}

/// What the drives have to take.
#[derive(Debug, Clone, Serialize)]
pub struct Drives {
    /// In all nodes.
    pub count: f64,
    /// Rating at which one lives exactly as long as its warranty.
    pub required_pbw: f64,
    /// The same as drive writes a day.
    pub required_dwpd: f64,
    /// At the rating that was told; none without one, or when nothing is written.
    pub life_years: Option<f64>,
}

/// A figure of both deployments.
struct Row {
    /// For people, and for programs.
    names: (&'static str, &'static str),
    values: [Option<f64>; 2],
    show: fn(f64) -> String,
    /// Whether the second for each of the first means something.
    has_ratio: bool,
}

impl Sizing {
    pub(crate) fn new(data: Data, tiered: Deployment, all_ram: Deployment) -> Self {
        let costs = tiered.cost.zip(all_ram.cost);
        Self {
            data,
            ram_saving: all_ram.ram_bytes / tiered.ram_bytes,
            cost_saving: costs.map(|(tiered, all_ram)| all_ram / tiered),
            tiered,
            all_ram,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let Data { keys, key_bytes, value_bytes, copies, bytes, warranty_years } = self.data;
        let mut out = format!(
            "{} keys of {key_bytes} bytes with values of {value_bytes:.0}, {copies} {} of each: \
             {} of data.\n\n",
            show_count(keys).trim_end(),
            if copies == 1.0 { "copy" } else { "copies" },
            show_bytes(bytes),
        );
        let mut table = Table::new(["", "RAM and flash", "all in RAM", "ratio"]);
        for row in self.rows() {
            let [tiered, all_ram] =
                row.values.map(|value| value.map_or("-".to_owned(), |value| (row.show)(value)));
            let ratio = row.ratio().map_or(String::new(), |ratio| format!("{ratio:.1}x"));
            table.row([row.names.0.to_owned(), tiered, all_ram, ratio]);
        }
        out += &table.text();
        out + &format!(
            "\nSums are over all nodes, replicas included. Needed ratings are for a warranty of \
             {warranty_years} years.\n"
        )
    }

    /// For programs: a line a figure.
    pub fn csv(&self) -> String {
        let mut table = Table::new(["figure", "ram_and_flash", "all_in_ram", "ratio"]);
        for row in self.rows() {
            let [tiered, all_ram] =
                row.values.map(|value| value.map_or(String::new(), |value| value.to_string()));
            let ratio = row.ratio().map_or(String::new(), |ratio| rounded(ratio, 3).to_string());
            table.row([row.names.1.to_owned(), tiered, all_ram, ratio]);
        }
        table.csv()
    }

    fn rows(&self) -> Vec<Row> {
        let row = |names, of: fn(&Deployment) -> Option<f64>, show| Row {
            names,
            values: [of(&self.tiered), of(&self.all_ram)],
            show,
            has_ratio: false,
        };
        let compared = |row: Row| Row { has_ratio: true, ..row };
        let years = |years: f64| format!("{years:.2} years");
        let factor = |factor: f64| format!("{factor:.2}");
        let mut rows = vec![
            compared(row(("RAM", "ram_bytes"), |it| Some(it.ram_bytes), show_bytes)),
            row(("flash", "flash_bytes"), |it| some(it.flash_bytes), show_bytes),
            compared(row(("nodes", "nodes"), |it| Some(it.nodes), whole)),
            row(("shards", "shards"), |it| Some(it.shards), whole),
            compared(row(
                ("RAM a key", "ram_per_key_bytes"),
                |it| Some(it.ram_per_key_bytes),
                show_bytes,
            )),
            row(("values in RAM", "values_in_ram"), |it| Some(it.values_in_ram), show_share),
            row(("reads from RAM", "hit_ratio"), |it| Some(it.hit_ratio), show_share),
            row(
                ("reads from flash", "flash_reads_per_second"),
                |it| it.drives.as_ref().map(|_| it.flash_reads_per_second),
                |rate| format!("{}/s", show_count(rate).trim_end()),
            ),
            row(("flash filled", "flash_fill"), |it| it.flash_fill, show_share),
            row(
                ("writes to flash", "flash_write_bytes_per_second"),
                |it| it.drives.as_ref().map(|_| it.flash_write_bytes_per_second),
                |rate| format!("{}/s", show_bytes(rate)),
            ),
            row(
                ("write amplification", "write_amplification"),
                |it| it.write_amplification,
                factor,
            ),
            row(("drives", "drives"), |it| it.drives.as_ref().map(|it| it.count), whole),
            row(
                ("needed PBW of each", "required_pbw"),
                |it| it.drives.as_ref().map(|it| it.required_pbw),
                factor,
            ),
            row(
                ("needed DWPD of each", "required_dwpd"),
                |it| it.drives.as_ref().map(|it| it.required_dwpd),
                factor,
            ),
        ];
        let life = |it: &Deployment| it.drives.as_ref().and_then(|it| it.life_years);
        if life(&self.tiered).is_some() {
            rows.push(row(("drive life", "life_years"), life, years));
        }
        if self.tiered.cost.is_some() {
            rows.push(compared(row(("cost", "cost"), |it| it.cost, whole)));
        }
        rows
    }
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        let [tiered, all_ram] = self.values;
        tiered.zip(all_ram).filter(|_| self.has_ratio).map(|(tiered, all_ram)| all_ram / tiered)
    }
}

/// None for nothing.
fn some(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}
