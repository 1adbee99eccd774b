"""SGLang's radix tree from its rules alone: nodes are runs of whole pages between branch points."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Page = Any


@dataclass(eq=False)
class Node:
    """A run of pages; `touched` orders evictions, `locks` counts the requests that stand on it or below."""

    pages: list[Page]
    parent: "Node | None"
    touched: int
    children: dict[Page, "Node"] = field(default_factory=dict)
    locks: int = 0

    @property
    def depth(self) -> int:
        """Return the pages from the root to the end of the node."""
        return len(self.pages) + (self.parent.depth if self.parent else 0)


class Tree:
    """What has been computed and is still in memory."""

    def __init__(self) -> None:
        self.clock = 0
        self.root = Node([], None, 0, locks=1)

    def match(self, pages: Sequence[Page]) -> Node:
        """Return the node at which the longest known prefix ends; it and all above are touched."""
        return self.walk(pages)[0]

    def insert(self, pages: Sequence[Page]) -> tuple[Node, int]:
        """Add what is missing; return the last node and how many pages were there before."""
        node, num_known = self.walk(pages)
        if num_known < len(pages):
            leaf = Node(list(pages[num_known:]), node, self.tick())
            node.children[pages[num_known]] = leaf
            node = leaf
        return node, num_known

    def walk(self, pages: Sequence[Page]) -> tuple[Node, int]:
        now, node, at = self.tick(), self.root, 0
        while at < len(pages) and pages[at] in node.children:
            node = node.children[pages[at]]
            node.touched = now
            same = 0
            while same < len(node.pages) and at + same < len(pages) and node.pages[same] == pages[at + same]:
                same += 1
            at += same
            if same < len(node.pages):
                return self.split(node, same), at
        return node, at

    def split(self, node: Node, at: int) -> Node:
        """Cut a node in two; the upper part is new and locked as often as the lower."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.pages[:at], parent, self.tick(), {node.pages[at]: node}, node.locks)
        parent.children[upper.pages[0]] = upper
        node.pages, node.parent = node.pages[at:], upper
        return upper

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def lock(self, node: Node, by: int) -> None:
        above: Node | None = node
        while above is not None:
            above.locks += by
            above = above.parent

    def nodes(self) -> list[Node]:
        found = [self.root]
        for node in found:
            found += node.children.values()
        return found[1:]

    @property
    def num_evictable(self) -> int:
        return sum(len(node.pages) for node in self.nodes() if node.locks == 0)

    def evict(self, num_pages: int) -> int:
        """Forget whole leaves, the least recently touched first; return the pages that are free now."""
        gone = 0
        while gone < num_pages:
            leaves = [node for node in self.nodes() if not node.children and node.locks == 0]
            if not leaves:
                break
            node = min(leaves, key=lambda n: n.touched)
            assert node.parent is not None
            del node.parent.children[node.pages[0]]
            gone += len(node.pages)
        return gone
