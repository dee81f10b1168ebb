//! The controller over real sockets: admin API, grant and watch streams, restarts and faults.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod alarms;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod audited;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod bookkeeping;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod bundles;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod chains;
#[cfg(test)]
mod check;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod console;
#[cfg(test)]
mod convictions;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod depth;
#[cfg(test)]
mod divided;
#[cfg(test)]
mod failed;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod flips;
#[cfg(test)]
mod folding;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod glance;
#[cfg(test)]
mod heeded;
#[cfg(test)]
mod history;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod junk;
#[cfg(test)]
mod jwt;
#[cfg(test)]
mod large;
#[cfg(test)]
mod letting;
#[cfg(test)]
mod live;
#[cfg(test)]
mod logged;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod meanwhile;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod narrowed;
#[cfg(test)]
mod over_rest;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod parameters;
#[cfg(test)]
mod parting;
#[cfg(test)]
mod planned;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod proposals;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod recoveries;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod renewals;
#[cfg(test)]
mod replays;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod retired;
#[cfg(test)]
mod rolling;
#[cfg(test)]
mod runaways;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod signer;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod statements;
#[cfg(test)]
mod support;
#[cfg(test)]
mod surfaces;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod waits;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod watch_time;
#[cfg(test)]
mod what_if;
