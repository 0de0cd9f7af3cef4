//! The least that a program needs: `fetch URL` writes what it names to standard output.

use std::io::Write;

use quicket_client::{Client, Config};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: fetch https://HOST[:PORT]/PATH")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut answer = Client::new(Config::new()).get(&url).await?;
        while let Some(piece) = answer.data().await? {
            std::io::stdout().write_all(&piece)?;
        }
        Ok(())
    })
}
