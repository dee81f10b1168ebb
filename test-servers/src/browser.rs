//! A real browser: Debian's Chromium, driven by its own driver over WebDriver.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use super::{ServerError, Site, installed};

/// A driver, which starts browsers as it is asked to.
#[derive(Debug)]
pub struct Browser {
    site: Site,
}

impl Browser {
    /// Starts one.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start() -> Result<Self, ServerError> {
        installed(Command::new("chromium").arg("--version"), "chromium", "chromium")?;
        installed(Command::new("chromedriver").arg("--version"), "chromedriver", "chromium-driver")?;
        let mut site = Site::new("tidegate-browser")?;
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={}", site.port));
        // A browser keeps files in its user's home, too.
        driver.env("HOME", site.data()).env("TMPDIR", site.tmp());
        site.run(&mut driver, |site| Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, site.port)).is_ok()))?;
        Ok(Self { site })
    }

    /// Where the driver listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.site.port)
    }

    /// What a browser has to be started with: this size, in the light or in the dark. It has no sandbox of its own, which
    /// needs rights that a container does not give, and loads nothing but pages of tests.
    #[must_use]
    pub fn arguments((width, height): (u32, u32), is_dark: bool) -> Vec<String> {
        // 0 is dark, 1 is light.
        let scheme = u8::from(!is_dark);
        vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={width},{height}"),
            format!("--blink-settings=preferredColorScheme={scheme}"),
        ]
    }
}

/// The script of a package of npm, as text.
///
/// # Errors
/// It is not installed.
pub fn script(package: &'static str, file: &str) -> Result<String, ServerError> {
    let path = super::npm::package(package, package)?.join(file);
    std::fs::read_to_string(path).map_err(super::io_error("read a file"))
}
