"""A GPU's name as people write it: H100 SXM for h100-sxm."""

import functools

from planner.catalog.catalog_files import gpu_names

_WORDS = {"pcie": "PCIe", "nvlink": "NVLink", "ada": "Ada", "arc": "Arc", "gaudi": "Gaudi"}


@functools.cache
def gpu_label(name: str) -> str:
    """Return the name of a GPU as people write it; names that the catalog lacks stay.

    >>> gpu_label("h100-sxm"), gpu_label("a100-sxm-40gb"), gpu_label("h100-pcie"), gpu_label("my-gpu")
    ('H100 SXM', 'A100 SXM 40GB', 'H100 PCIe', 'my-gpu')
    """
    whole, colon, slice_name = name.partition(":")
    if whole not in gpu_names():
        return name
    return " ".join(_WORDS.get(word, word.upper()) for word in whole.split("-")) + colon + slice_name
