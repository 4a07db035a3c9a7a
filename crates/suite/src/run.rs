//! `kelvin bench suite`: from options to a folder of results.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use stdx::output::{complain, exit_code, print};

use crate::catalogue::{TestPlan, tests};
use crate::comparisons::compare;
use crate::cores::Cores;
use crate::data_set::{LARGE, Tiers};
use crate::drive::Drive;
use crate::error::SuiteError;
use crate::info::{Client, Info};
use crate::load::Loader;
use crate::machine;
use crate::options::Options;
use crate::probe::Probe;
use crate::progress::Progress;
use crate::results::{FORMAT, Results, Setting, State, Test};
use crate::scale::{RAM_BYTES, RAM_BYTES_MIN, SMOKE_RAM_BYTES, Scale};
use crate::servers::{Own, Servers, Source};
use crate::store::Store;
use crate::test_run::TestRun;

/// The program, as it calls itself.
const PROGRAM: &str = "kelvin bench suite";
/// Bad usage, or a run that cannot begin.
const CANNOT_RUN: u8 = 2;
/// Seconds of the probe's reads.
const PROBE_SECONDS: u32 = 5;
const PROBE_SMOKE_SECONDS: u32 = 1;
/// Bytes of the probe's file: the flash that the server gets, within these bounds.
const PROBE_FILE_BYTES_MAX: u64 = 8 << 30;
const PROBE_SMOKE_FILE_BYTES: u64 = 64 << 20;

/// Runs the suite that `words` (without the name of the program) describe. The exit code is 0 when
/// all tests were run and all replies were right, 1 when not, 2 when it could not begin.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let name = OsString::from(PROGRAM);
    let options = match Options::try_parse_from(std::iter::once(name).chain(words)) {
        Ok(options) => options,
        // The text of --help goes to the standard output, a complaint to the other.
        Err(error) if !error.use_stderr() => return exit_code(PROGRAM, error.print(), CANNOT_RUN),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let outcome = if options.list { list(&options) } else { run(&options) };
    match outcome {
        Ok(State::Done) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            complain(PROGRAM, &error);
            let was_run = matches!(error, SuiteError::Output(_)) && !options.list;
            if was_run { ExitCode::FAILURE } else { ExitCode::from(CANNOT_RUN) }
        }
    }
}

/// Prints the tests and what they would run.
fn list(options: &Options) -> Result<State, SuiteError> {
    let ram_bytes = options.ram.unwrap_or(RAM_BYTES);
    let cores = pinned(options);
    let scale = scale(options, ram_bytes, cores.as_ref());
    let mut text = String::new();
    for plan in selected(&options.only)? {
        let _ = writeln!(text, "{}  {}", plan.id, plan.title);
        let _ = writeln!(text, "  from       {}, {}", plan.publication, plan.place);
        let _ = writeln!(text, "  published  {}", plan.load.published);
        let _ = writeln!(text, "  here       {}", scale.line(&plan.load, plan.data));
    }
    print(text)?;
    Ok(State::Done)
}

/// The tests that are asked for.
fn selected(only: &[String]) -> Result<Vec<TestPlan>, SuiteError> {
    let all = tests();
    if let Some(unknown) = only.iter().find(|id| all.iter().all(|test| test.id != **id)) {
        return Err(SuiteError::Options(format!("no test is named {unknown}: see --list")));
    }
    let wanted = |test: &TestPlan| only.is_empty() || only.contains(&test.id);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Cores of the server and of the load, if they are to have their own.
fn pinned(options: &Options) -> Option<(Cores, Cores)> {
    if options.no_pin { None } else { Cores::halves() }
}

fn scale(options: &Options, ram_bytes: u64, cores: Option<&(Cores, Cores)>) -> Scale {
    Scale {
        ram_bytes,
        flash_bytes: (ram_bytes as f64 * options.ratio) as u64,
        smoke: options.smoke,
        load_threads: cores.map_or(1, |(_, load)| load.count()),
        server_cores: cores.map_or(1, |(server, _)| server.count()),
    }
}

/// A run from its options to its end; the state is that of the whole run.
pub fn run(options: &Options) -> Result<State, SuiteError> {
    let stop = stop_on_signals()?;
    let mut run = Run::new(options)?;
    let state = run.all(&stop);
    run.servers.end();
    let shown = run.progress.end();
    let state = state?;
    run.conclude()?;
    shown?;
    Ok(state)
}

/// Set by the first Ctrl-C; a second one ends the suite at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, SuiteError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| SuiteError::Options(format!("signals: {error}")))?;
    }
    Ok(stop)
}

/// A run.
struct Run {
    plans: Vec<TestPlan>,
    rounds: u32,
    scale: Scale,
    results: Results,
    store: Store,
    servers: Servers,
    loader: Loader,
    flash_folder: Option<PathBuf>,
    probe_cores: Option<Cores>,
    progress: Progress,
}

impl Run {
    fn new(options: &Options) -> Result<Run, SuiteError> {
        let (old_store, earlier) = options.resume.as_deref().map(Store::open).transpose()?.unzip();
        let plans = plans_of(options, earlier.as_ref())?;
        let running = options.server.as_deref().map(|address| look_at(address, options));
        let running = running.transpose()?;
        let cores = pinned(options);
        let scale = match &earlier {
            Some(results) => Scale {
                ram_bytes: results.setting.ram_bytes,
                flash_bytes: results.setting.flash_bytes,
                smoke: results.setting.smoke,
                ..scale(options, 0, cores.as_ref())
            },
            None => scale(options, ram_bytes(options, running.as_ref())?, cores.as_ref()),
        };
        // Only now: what is refused leaves no folder.
        let store = old_store.map_or_else(|| Store::create(&out_folder(options)), Ok)?;
        let program = std::env::current_exe().map_err(SuiteError::file(Path::new("kelvin")))?;
        let folder = options.flash_path.clone().unwrap_or_else(|| store.folder().to_owned());
        let flash_folder =
            (options.server.is_none() || options.flash_path.is_some()).then_some(folder);
        if let Some(folder) = &flash_folder {
            fs::create_dir_all(folder).map_err(SuiteError::file(folder))?;
        }
        let drive = flash_folder.as_deref().and_then(Drive::of_folder);
        let (server_cores, load_cores) = cores.unzip();
        let source = source(options, &scale, &program, flash_folder.as_deref(), &store);
        let setting = setting(&source, &scale);
        let results = match earlier {
            Some(results) => resumed(results, &setting, options)?,
            None => fresh(&plans, setting, flash_folder.as_deref(), running.as_ref()),
        };
        Ok(Run {
            progress: Progress::new(plans.len()),
            plans,
            rounds: options.rounds,
            scale,
            results,
            loader: Loader { program, cores: load_cores, raw_folder: store.raw_folder() },
            store,
            servers: Servers::new(source, server_cores.clone(), drive),
            flash_folder,
            probe_cores: server_cores,
        })
    }

    /// Runs what is not done yet.
    fn all(&mut self, stop: &AtomicBool) -> Result<State, SuiteError> {
        self.results.state = State::Partial;
        self.store.save(&self.results)?;
        self.probe();
        for index in 0..self.plans.len() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.test(index, stop)?;
        }
        self.results.state = overall(&self.results.tests);
        self.store.save(&self.results)?;
        Ok(self.results.state.clone())
    }

    fn test(&mut self, index: usize, stop: &AtomicBool) -> Result<(), SuiteError> {
        let plan = &self.plans[index];
        let place = self.results.tests.iter().position(|test| test.id == plan.id);
        let place = place.expect("invariant: the results have every test of the run");
        if self.results.tests[place].state == State::Done {
            self.progress.skip();
            return Ok(());
        }
        let mut test = self.results.tests[place].clone();
        let run = TestRun {
            plan,
            scale: &self.scale,
            rounds: self.rounds,
            loader: &self.loader,
            stop,
            progress: &self.progress,
        };
        run.run(&mut self.servers, &mut test);
        self.progress.test_ended(&test);
        self.results.tests[place] = test;
        self.complete_machine();
        self.results.comparisons = compare(&self.results);
        self.store.save(&self.results)
    }

    /// The server's version is known once there is one.
    fn complete_machine(&mut self) {
        if self.results.machine.versions.len() < 2
            && let Ok(info) = self.servers.info()
        {
            self.results.machine = machine::describe(self.flash_folder.as_deref(), &info);
        }
    }

    /// A drive that cannot be probed has no limit; the tests are worth something without.
    fn probe(&mut self) {
        let Some(folder) = self.flash_folder.as_deref() else { return };
        if self.results.drive_limit.is_some() {
            return;
        }
        self.progress.step("what the drive can do");
        let smoke = self.scale.smoke;
        let probe = Probe {
            folder,
            file_bytes: if smoke {
                PROBE_SMOKE_FILE_BYTES
            } else {
                self.scale.flash_bytes.clamp(PROBE_SMOKE_FILE_BYTES, PROBE_FILE_BYTES_MAX)
            },
            seconds: if smoke { PROBE_SMOKE_SECONDS } else { PROBE_SECONDS },
        };
        match probe.run(self.probe_cores.as_ref()) {
            Ok(limit) => {
                self.progress.line(&format!(
                    "{:<15} {:>9.0} reads/s of {} B, {:.0} MB/s of writes ({})",
                    "drive",
                    limit.reads_per_second,
                    limit.block_bytes,
                    limit.write_bytes_per_second / 1e6,
                    limit.probe
                ));
                self.results.drive_limit = Some(limit);
            }
            Err(error) => self.progress.line(&format!("{:<15} not measured: {error}", "drive")),
        }
    }

    /// Writes the report and tells where everything is.
    fn conclude(&self) -> Result<(), SuiteError> {
        let files = crate::report::write(&self.results, self.store.folder())
            .map_err(|error| SuiteError::Options(error.to_string()))?;
        let results = self.store.results_path();
        let lines = files.iter().chain([&results]).map(|file| format!("{}\n", file.display()));
        let told = print(lines.collect::<String>());
        let count = |wanted: fn(&State) -> bool| {
            self.results.tests.iter().filter(|test| wanted(&test.state)).count()
        };
        let failed = count(|state| matches!(state, State::Failed(_)));
        let missing = count(|state| matches!(state, State::Partial | State::Pending));
        if failed + missing > 0 {
            let folder = self.store.folder().display();
            let count = self.results.tests.len();
            complain(
                PROGRAM,
                format_args!(
                    "of {count} tests {failed} failed and {missing} did not come to their end: go \
                     on with --resume {folder}"
                ),
            );
        }
        Ok(told?)
    }
}

/// What a running server says; it must be one that the suite may use.
fn look_at(address: &str, options: &Options) -> Result<Info, SuiteError> {
    let mut client = Client::connect(address)?;
    let keys = client.key_count()?;
    if keys > 0 && !options.flush {
        return Err(SuiteError::Options(format!(
            "{address} has {keys} keys, which the suite would delete: allow that with --flush"
        )));
    }
    client.info()
}

fn ram_bytes(options: &Options, running: Option<&Info>) -> Result<u64, SuiteError> {
    let own = if options.smoke { SMOKE_RAM_BYTES } else { RAM_BYTES };
    let asked = running.and_then(|info| info.number("maxmemory")).filter(|bytes| *bytes > 0);
    let bytes = match (options.ram, running, asked) {
        (Some(bytes), ..) | (None, Some(_), Some(bytes)) => bytes,
        (None, None, _) => own,
        (None, Some(_), None) => {
            return Err(SuiteError::Options(
                "the server has no maxmemory: say with --ram how much it may use".to_owned(),
            ));
        }
    };
    if bytes < RAM_BYTES_MIN {
        return Err(SuiteError::Options(format!("--ram is at least {RAM_BYTES_MIN} bytes")));
    }
    Ok(bytes)
}

fn out_folder(options: &Options) -> PathBuf {
    options.out.clone().unwrap_or_else(|| {
        let names = (1..).map(|number| PathBuf::from(format!("kelvin-suite-{number}")));
        names.into_iter().find(|name| !name.exists()).expect("invariant: numbers do not end")
    })
}

fn source(
    options: &Options,
    scale: &Scale,
    program: &Path,
    flash_folder: Option<&Path>,
    store: &Store,
) -> Source {
    match (&options.server, flash_folder) {
        (Some(address), _) => Source::Running(address.clone()),
        (None, folder) => Source::Own(Own {
            program: program.to_owned(),
            ram_bytes: scale.ram_bytes,
            flash_bytes: scale.flash_bytes,
            flash_folder: folder
                .unwrap_or(store.folder())
                .join(format!("kelvin-suite-flash-{}", std::process::id())),
            log_folder: store.raw_folder(),
        }),
    }
}

fn setting(source: &Source, scale: &Scale) -> Setting {
    let server = match source {
        Source::Running(address) => address.clone(),
        Source::Own(own) => {
            let arguments = own.arguments(Tiers::RamAndFlash, "PORT", scale.server_cores);
            format!("kelvin {}", arguments.join(" "))
        }
    };
    Setting {
        server,
        ram_bytes: scale.ram_bytes,
        flash_bytes: scale.flash_bytes,
        keys: LARGE.keys(scale.ram_bytes),
        smoke: scale.smoke,
    }
}

/// The tests of the run; those of a resumed run are in its results.
fn plans_of(options: &Options, earlier: Option<&Results>) -> Result<Vec<TestPlan>, SuiteError> {
    let mut plans = selected(&options.only)?;
    if let Some(earlier) = earlier {
        plans.retain(|plan| earlier.tests.iter().any(|test| test.id == plan.id));
    }
    Ok(plans)
}

fn fresh(
    plans: &[TestPlan],
    setting: Setting,
    flash_folder: Option<&Path>,
    server: Option<&Info>,
) -> Results {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Results {
        format: FORMAT,
        started_unix_ms: now.as_millis() as u64,
        state: State::Pending,
        machine: machine::describe(flash_folder, server.unwrap_or(&Info::default())),
        setting,
        drive_limit: None,
        tests: plans
            .iter()
            .map(|plan| Test {
                id: plan.id.clone(),
                title: plan.title.clone(),
                publication: plan.publication.to_owned(),
                state: State::Pending,
                commands: Vec::new(),
                rounds: Vec::new(),
            })
            .collect(),
        comparisons: Vec::new(),
    }
}

/// An earlier run's results, if they are of the same server.
fn resumed(earlier: Results, now: &Setting, options: &Options) -> Result<Results, SuiteError> {
    let was_own = earlier.setting.server.starts_with("kelvin ");
    let same =
        if was_own { options.server.is_none() } else { earlier.setting.server == now.server };
    if same {
        return Ok(earlier);
    }
    let server = &earlier.setting.server;
    let what =
        if was_own { "a server of its own".to_owned() } else { format!("--server {server}") };
    Err(SuiteError::Options(format!("the run to go on with was against {what}")))
}

/// The worst that happened.
fn overall(tests: &[Test]) -> State {
    let failed = tests.iter().filter(|test| matches!(test.state, State::Failed(_))).count();
    if tests.iter().any(|test| matches!(test.state, State::Partial | State::Pending)) {
        State::Partial
    } else if failed > 0 {
        State::Failed(format!("{failed} of {} tests failed", tests.len()))
    } else {
        State::Done
    }
}
