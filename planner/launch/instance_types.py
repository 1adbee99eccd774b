"""Types of instances of clouds, and the GPU that each has."""

import re

# Sources: the clouds' pages of accelerated instance types (AWS, Google Cloud, Azure, Oracle), 2026-11.
GPUS = tuple((re.compile(pattern, re.IGNORECASE), gpu) for pattern, gpu in (
    (r"p3dn(?:\..+)?", "v100-sxm-32gb"), (r"p3(?:\..+)?", "v100-sxm-16gb"), (r"p4d(?:\..+)?", "a100-sxm-40gb"),
    (r"p4de(?:\..+)?", "a100-sxm"), (r"p5(?:\..+)?", "h100-sxm"), (r"p5en?(?:\..+)?", "h200-sxm"),
    (r"p6-b200(?:\..+)?", "b200-sxm"), (r"p6-b300(?:\..+)?", "b300-sxm"), (r"[pu]6e-gb200(?:\..+)?", "gb200"),
    (r"[pu]6e-gb300(?:\..+)?", "gb300"), (r"g4dn(?:\..+)?", "t4"), (r"g5(?:\..+)?", "a10g"),
    (r"gr?6f?(?:\..+)?", "l4"), (r"g6e(?:\..+)?", "l40s"), (r"g7e(?:\..+)?", "rtx-pro-6000"),
    (r"a2-(?:highgpu|megagpu)(?:-.+)?", "a100-sxm-40gb"), (r"a2-ultragpu(?:-.+)?", "a100-sxm"),
    (r"a3-(?:highgpu|megagpu|edgegpu)(?:-.+)?", "h100-sxm"), (r"a3-ultragpu(?:-.+)?", "h200-sxm"),
    (r"a4-highgpu(?:-.+)?", "b200-sxm"), (r"a4x-highgpu(?:-.+)?", "gb200"), (r"a4x-maxgpu(?:-.+)?", "gb300"),
    (r"g2-standard(?:-.+)?", "l4"), (r"g4-standard(?:-.+)?", "rtx-pro-6000"),
    (r"(?:standard_)?nc\d+ads_a100_v4", "a100-pcie"), (r"(?:standard_)?nd96asr(?:_a100)?_v4", "a100-sxm-40gb"),
    (r"(?:standard_)?nd96amsr_a100_v4", "a100-sxm"), (r"(?:standard_)?nd96isr?f?_h100_v5", "h100-sxm"),
    (r"(?:standard_)?ncc?\d+adi?s_h100_v5", "h100-nvl"), (r"(?:standard_)?nd96isr_h200_v5", "h200-sxm"),
    (r"(?:standard_)?nd96isr_mi300x_v5", "mi300x"), (r"(?:standard_)?nd128isr_(?:ndr_)?gb200_v6", "gb200"),
    (r"(?:standard_)?nd128isr_gb300_v6", "gb300"), (r"(?:standard_)?nc\d+as_t4_v3", "t4"),
    (r"(?:standard_)?nv\d+ad[ms]+_a10_v5", "a10"), (r"(?:standard_)?nd40rs_v2", "v100-sxm-32gb"),
    (r"bm\.gpu4\.8", "a100-sxm-40gb"), (r"bm\.gpu\.a100-v2\.8", "a100-sxm"), (r"bm\.gpu\.h100(?:-nc)?\.\d", "h100-sxm"),
    (r"bm\.gpu\.h200(?:-nc)?\.\d", "h200-sxm"), (r"bm\.gpu\.b200(?:-nc)?\.\d", "b200-sxm"),
    (r"bm\.gpu\.gb200\.\d", "gb200"), (r"bm\.gpu\.l40s(?:-nc)?\.\d", "l40s"), (r"[bv]m\.gpu\.a10\.\d", "a10"),
    (r"bm\.gpu\.mi300x\.\d", "mi300x"), (r"bm\.gpu\.mi355x\S*", "mi355x")))


def gpu_of_instance(name: str) -> str | None:
    """Return the GPU of a type or a family of instances; None if it is not known.

    >>> gpu_of_instance("p5.48xlarge"), gpu_of_instance("Standard_ND96isr_H100_v5"), gpu_of_instance("m5.large")
    ('h100-sxm', 'h100-sxm', None)
    """
    return next((gpu for pattern, gpu in GPUS if pattern.fullmatch(name.strip().removeprefix("ml."))), None)


# The number of GPUs by the size of an instance: of AWS by family, of Google Cloud, Oracle and Azure by their names.
COUNTS = tuple((re.compile(pattern, re.IGNORECASE), count) for pattern, count in (
    (r"p5\.4xlarge|p3\.2xlarge", 1), (r"p3\.8xlarge", 4), (r"p(?:3|3dn|4d|4de|5|5en?|6-b\d00)\.\d+xlarge", 8),
    (r"g\w+\.(?:12|24)xlarge", 4), (r"g\w+\.(?:48xlarge|metal)", 8), (r"g\w+\.\d*xlarge", 1),
    (r"g2-standard-24|g4-standard-96", 2), (r"g2-standard-48|g4-standard-192", 4),
    (r"g2-standard-96|g4-standard-384", 8), (r"g[24]-standard-\d+", 1), (r"(?:standard_)?nd96\w+", 8),
    (r"(?:standard_)?nc(?:24ads_a100|40ads_h100)\w+", 1), (r"(?:standard_)?nc(?:48ads_a100|80adis_h100)\w+", 2),
    (r"(?:standard_)?nc96ads_a100\w+", 4)))
NAMED_COUNT = re.compile(r"a\d\w*-\w+-(\d+)g(?:-\w+)?|[bv]m\.gpu\S*\.(\d+)", re.IGNORECASE)


def gpus_of_instance(name: str) -> int | None:
    """Return the GPUs of a type of instances; None if they are not known [1].

    >>> gpus_of_instance("p5.48xlarge"), gpus_of_instance("a3-highgpu-8g"), gpus_of_instance("g6e.xlarge")
    (8, 8, 1)
    """
    if match := NAMED_COUNT.fullmatch(name):
        return int(match[1] or match[2])
    return next((count for pattern, count in COUNTS if pattern.fullmatch(name)), None)
