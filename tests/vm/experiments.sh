#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ThemisIO's experiments on a disk, and shares beneath layers. Tables for the manual go to /out.
# Started by scripts/results.sh.
export NRS_LONG=1
echo '| experiment | shares | requests | error, % |' >/out/experiments.md
echo '|---|---:|---:|---:|' >>/out/experiments.md
echo '| job | policy | alone, ms | beside, ms | slower, % | requests/s |' >/out/interference.md
echo '|---|---|---:|---:|---:|---:|' >>/out/interference.md
bash /tests/fair-tree.sh experiment composite && bash /tests/interference.sh &&
	bash /tests/layers.sh
