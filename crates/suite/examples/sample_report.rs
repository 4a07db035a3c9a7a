//! Writes made-up runs and their reports into a folder, to look at and for the browser test:
//! `cargo run -p suite --example sample_report -- FOLDER`.

use std::path::Path;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: sample_report FOLDER")?;
    let runs = [
        ("complete", fixture::complete(3)),
        ("again", fixture::scaled(fixture::complete(3), 1.06)),
        ("troubled", fixture::troubled()),
        ("smoke", fixture::smoke()),
    ];
    for (name, results) in runs {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("results.json"), serde_json::to_vec(&results)?)?;
        suite::report::write(&results, &folder)?;
    }
    Ok(())
}
