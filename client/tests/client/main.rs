//! The client against a fake controller that runs the real engine.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod alone;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod chains;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod debts;
#[cfg(test)]
mod demoted;
#[cfg(test)]
mod demotion;
#[cfg(test)]
mod endpoints;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fields;
#[cfg(test)]
mod governed;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod links;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod paced;
#[cfg(test)]
mod resolve;
#[cfg(test)]
mod session;
#[cfg(test)]
mod shadow;
mod shutdown;
#[cfg(test)]
mod sleep;
#[cfg(test)]
mod start;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod tower;
#[cfg(test)]
mod watches;
