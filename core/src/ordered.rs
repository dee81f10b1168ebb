//! Members in the order of the level that satisfies them, with sums: one descent finds the water level.
//!
//! Method: a B+ tree whose branches carry the demand and the weight of everything below. A node is dropped when it is
//! empty and never merged before, which under mixed changes wastes little (Johnson and Shasha, B-trees with inserts and
//! deletes: why free-at-empty is better than merge-at-half, 1993).

use std::hash::{Hash, Hasher};

/// Items of a leaf, or children of a branch; a fuller node is split.
const FULL: usize = 32;

/// One member, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item<K> {
    /// The level that satisfies it.
    pub level: i128,
    pub key: K,
    pub demand: i64,
    pub weight: i64,
}

impl<K: Copy> Item<K> {
    fn place(&self) -> (i128, K) {
        (self.level, self.key)
    }

    pub(crate) fn sum(&self) -> Sum {
        Sum { demand: i128::from(self.demand), weight: i128::from(self.weight) }
    }
}

/// The sums of some members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sum {
    pub demand: i128,
    pub weight: i128,
}

impl Sum {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { demand: self.demand + other.demand, weight: self.weight + other.weight }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { demand: self.demand - other.demand, weight: self.weight - other.weight }
    }
}

/// All members.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<K> {
    root: Node<K>,
}

#[derive(Clone, Debug)]
enum Node<K> {
    Leaf(Vec<Item<K>>),
    Branch(Vec<Child<K>>),
}

#[derive(Clone, Debug)]
struct Child<K> {
    /// Every item below comes at or after this place, and every item of earlier children before it.
    first: (i128, K),
    sum: Sum,
    below: Node<K>,
}

impl<K> Ordered<K> {
    pub(crate) const fn new() -> Self {
        Self { root: Node::Leaf(Vec::new()) }
    }
}

impl<K: Ord + Copy> Ordered<K> {
    pub(crate) fn insert(&mut self, item: Item<K>) {
        if let Some(upper) = self.root.insert(item) {
            let lower = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            self.root = Node::Branch([lower, upper].into_iter().filter_map(Child::of).collect());
        }
    }

    /// Removes a member; false when it is not there.
    pub(crate) fn remove(&mut self, level: i128, key: K) -> bool {
        let found = self.root.remove((level, key)).is_some();
        loop {
            match &mut self.root {
                Node::Branch(children) if children.len() <= 1 => {
                    self.root = children.pop().map_or(Node::Leaf(Vec::new()), |only| only.below);
                }
                Node::Branch(_) | Node::Leaf(_) => return found,
            }
        }
    }

    /// Whether these are its members, in their order, and the sums of every branch are those of what is below it.
    pub(crate) fn is_of(&self, items: &[Item<K>]) -> bool {
        let mut members = Vec::new();
        self.root.adds_up(&mut members).is_some() && members.iter().eq(items)
    }

    /// The sum of the first members that are `under` water, given a level and the sum of all members before it; and a
    /// place that exactly these members come before, or `None` when all members do. Once a member is not under water,
    /// no later one may be.
    pub(crate) fn dive(&self, under: impl Fn(i128, Sum) -> bool) -> (Sum, Option<(i128, K)>) {
        let (mut before, mut end) = (Sum::default(), None);
        let mut node = &self.root;
        while let Node::Branch(children) = node {
            let mut children = children.iter();
            let Some(mut child) = children.next() else { break };
            for next in children {
                let passed = before.plus(child.sum);
                if !under(next.first.0, passed) {
                    end = Some(next.first);
                    break;
                }
                (before, child) = (passed, next);
            }
            node = &child.below;
        }
        if let Node::Leaf(items) = node {
            for item in items {
                if !under(item.level, before) {
                    return (before, Some(item.place()));
                }
                before = before.plus(item.sum());
            }
        }
        (before, end)
    }
}

impl<K: Ord + Copy> Node<K> {
    /// Inserts an item and returns the upper half if the node became too full.
    fn insert(&mut self, item: Item<K>) -> Option<Self> {
        match self {
            Self::Leaf(items) => {
                let at = items.partition_point(|other| other.place() < item.place());
                items.insert(at, item);
                (items.len() > FULL).then(|| Self::Leaf(items.split_off(items.len() / 2)))
            }
            Self::Branch(children) => {
                let at = children.partition_point(|child| child.first <= item.place()).saturating_sub(1);
                let child = children.get_mut(at)?;
                child.first = child.first.min(item.place());
                child.sum = child.sum.plus(item.sum());
                if let Some(upper) = child.below.insert(item).and_then(Child::of) {
                    child.sum = child.sum.minus(upper.sum);
                    children.insert(at + 1, upper);
                }
                (children.len() > FULL).then(|| Self::Branch(children.split_off(children.len() / 2)))
            }
        }
    }

    fn remove(&mut self, place: (i128, K)) -> Option<Item<K>> {
        match self {
            Self::Leaf(items) => {
                let at = items.binary_search_by(|item| item.place().cmp(&place)).ok()?;
                Some(items.remove(at))
            }
            Self::Branch(children) => {
                let at = children.partition_point(|child| child.first <= place).checked_sub(1)?;
                let child = children.get_mut(at)?;
                let item = child.below.remove(place)?;
                child.sum = child.sum.minus(item.sum());
                if child.below.is_empty() {
                    children.remove(at);
                }
                Some(item)
            }
        }
    }

    /// Appends the members below; returns their sum, or `None` where a branch has another one.
    fn adds_up(&self, members: &mut Vec<Item<K>>) -> Option<Sum> {
        match self {
            Self::Leaf(items) => {
                members.extend(items);
                Some(items.iter().fold(Sum::default(), |sum, item| sum.plus(item.sum())))
            }
            Self::Branch(children) => children.iter().try_fold(Sum::default(), |sum, child| {
                let below = child.below.adds_up(members)?;
                (below == child.sum).then_some(sum.plus(below))
            }),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(items) => items.is_empty(),
            Self::Branch(children) => children.is_empty(),
        }
    }
}

impl<K: Ord + Copy> Child<K> {
    fn of(below: Node<K>) -> Option<Self> {
        let (first, sum) = match &below {
            Node::Leaf(items) => {
                let sum = items.iter().fold(Sum::default(), |sum, item| sum.plus(item.sum()));
                (items.first()?.place(), sum)
            }
            Node::Branch(children) => {
                let sum = children.iter().fold(Sum::default(), |sum, child| sum.plus(child.sum));
                (children.first()?.first, sum)
            }
        };
        Some(Self { first, sum, below })
    }
}

/// Members count, however they are spread over nodes.
impl<K: Hash> Hash for Ordered<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.root.hash(state);
    }
}

impl<K: Hash> Hash for Node<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Leaf(items) => items.iter().for_each(|item| item.hash(state)),
            Self::Branch(children) => children.iter().for_each(|child| child.below.hash(state)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn item(level: i128, key: u16) -> Item<u16> {
        Item { level, key, demand: i64::from(key) + 1, weight: 3 }
    }

    /// Nodes without children, and levels.
    fn shape(node: &Node<u16>) -> (usize, usize) {
        let Node::Branch(children) = node else { return (1, 1) };
        let below: Vec<_> = children.iter().map(|child| shape(&child.below)).collect();
        (
            below.iter().map(|(leaves, _)| leaves).sum(),
            1 + below.iter().map(|(_, levels)| levels).max().unwrap(),
        )
    }

    #[test]
    fn full_nodes_split_in_halves_and_empty_ones_vanish() {
        let mut ordered = Ordered::new();
        let mut grown = Vec::new();
        for key in 0..4_000 {
            let before = shape(&ordered.root).1;
            ordered.insert(item(7, key));
            if shape(&ordered.root).1 > before {
                grown.push(usize::from(key) + 1);
            }
        }
        // Each split leaves half of a node behind, so that the next one comes half of a node later.
        let half = FULL / 2;
        assert_eq!(grown, [FULL + 1, FULL + 1 + (FULL - 1) * half]);
        assert_eq!(shape(&ordered.root).0, (4_000 - FULL - 1) / half + 2);
        for key in 0..3_995 {
            assert!(ordered.remove(7, key));
        }
        assert_eq!(shape(&ordered.root), (1, 1));
    }

    #[test]
    fn equal_members_are_hashed_alike_however_they_came() {
        let hash = |ordered: &Ordered<u16>| {
            let mut hasher = std::hash::DefaultHasher::new();
            ordered.hash(&mut hasher);
            hasher.finish()
        };
        let (mut up, mut down) = (Ordered::new(), Ordered::new());
        (0..100).for_each(|key| up.insert(item(7, key)));
        (0..100).rev().for_each(|key| down.insert(item(7, key)));
        assert_eq!(hash(&up), hash(&down));
        up.remove(7, 50);
        assert_ne!(hash(&up), hash(&down));
    }

    proptest! {
        /// Long enough for three levels of nodes, and for most of the nodes to be dropped again.
        #[test]
        fn sums_and_order_are_those_of_a_plain_map(steps in prop::collection::vec((0_i128..40, 0_u16..4_000, 0_u8..5), 1..6_000), all_go: bool) {
            let (mut ordered, mut plain) = (Ordered::new(), BTreeMap::new());
            for (level, key, kind) in &steps {
                if *kind == 0 {
                    prop_assert_eq!(ordered.remove(*level, *key), plain.remove(&(*level, *key)).is_some());
                } else if plain.insert((*level, *key), item(*level, *key)).is_none() {
                    ordered.insert(item(*level, *key));
                }
            }
            if all_go {
                let mut left: Vec<_> = plain.keys().copied().collect();
                for (level, key) in left.split_off(left.len().min(5)) {
                    prop_assert!(ordered.remove(level, key));
                    plain.remove(&(level, key));
                }
            }
            for water in [-1, 0, 7, 20, 39, 40] {
                let (sum, end) = ordered.dive(|level, _| level <= water);
                let under = plain.range(..=(water, u16::MAX));
                let expected = under.fold(Sum::default(), |sum, (_, item)| sum.plus(item.sum()));
                prop_assert_eq!(sum, expected);
                let all = plain.keys().all(|place| end.is_none_or(|end| (*place < end) == (place.0 <= water)));
                prop_assert!(all && (end.is_some() || plain.keys().all(|(level, _)| *level <= water)));
            }
            // What is under water depends on all that is before it.
            let demand: i128 = plain.values().map(|item| item.sum().demand).sum();
            for left in [0, 1, 1_000, demand / 2, demand - 1, demand] {
                let (sum, end) = ordered.dive(|_, before| before.demand < left);
                let mut expected = Sum::default();
                let first_not = plain.values().find(|item| {
                    let is_under = expected.demand < left;
                    expected = if is_under { expected.plus(item.sum()) } else { expected };
                    !is_under
                });
                prop_assert_eq!(sum, expected, "{} of {}", left, demand);
                let is_counted = |place: &(i128, u16)| first_not.is_none_or(|item| *place < item.place());
                let exactly = |end| plain.keys().all(|place| (*place < end) == is_counted(place));
                prop_assert!(end.map_or(first_not.is_none(), exactly));
            }
        }
    }
}
