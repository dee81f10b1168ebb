//! Statements as text, against a controller in this process.

#[cfg(test)]
mod between;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod proposals;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod runaways;
#[cfg(test)]
mod support;
#[cfg(test)]
mod texts;
