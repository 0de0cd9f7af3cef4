//! Completion scripts and manual pages, made from the declarations of the flags.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::Failure;

/// Prints a completion script.
pub(crate) fn completion(shell: Shell) -> Result<(), Failure> {
    // To memory first: the generator panics where its output cannot be written, such as a pipe
    // that was closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "quicket", &mut script);
    print(&script)
}

/// Prints the manual page, or writes those of all commands to a directory.
pub(crate) fn manual(dir: Option<&Path>) -> Result<(), Failure> {
    let mut command = Args::command();
    command.build();
    let Some(dir) = dir else { return print(&page(command)?) };
    let failed = |error| Failure::environment(format!("cannot write to {}", dir.display()), error);
    fs::create_dir_all(dir).map_err(failed)?;
    let mut rest = vec![command];
    while let Some(command) = rest.pop() {
        let commands = command.get_subcommands();
        rest.extend(commands.filter(|below| below.get_name() != "help").cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        fs::write(dir.join(format!("{name}.1")), page(command)?).map_err(failed)?;
    }
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::environment("cannot make the manual page", error))?;
    Ok(page)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(text) {
        // Whoever reads has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::environment("cannot print", error)),
    }
}
