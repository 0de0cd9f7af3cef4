//! A program that this one becomes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::exit::{Failure, Kind};

/// What is at the end of a command line.
#[derive(Args, Debug)]
pub(crate) struct Becomes {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

impl Becomes {
    /// What the program is called.
    pub(crate) fn name(&self) -> Result<&OsStr, Failure> {
        let name =
            self.program.first().ok_or_else(|| Failure::new(Kind::Usage, "which program?"))?;
        // Flags that are not known are taken for it.
        if name.as_bytes().starts_with(b"-") {
            let shown = Path::new(name).display();
            let why = format!(
                "{shown} is no flag of this command (--help lists them); as a program, write ./{shown}"
            );
            return Err(Failure::new(Kind::Usage, why));
        }
        Ok(name)
    }

    /// Becomes the program; returns only if that fails. `prepare` says what else it gets.
    pub(crate) fn exec(
        &self,
        prepare: impl FnOnce(&mut Command) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let name = self.name()?;
        let mut command = Command::new(name);
        command.args(self.program.iter().skip(1));
        prepare(&mut command)?;
        let error = command.exec();
        Err(Failure::environment(format!("cannot start {}", Path::new(name).display()), error))
    }
}
