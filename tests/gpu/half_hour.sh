#!/bin/bash
# Half an hour on a machine with a GPU: what to check and to measure there, in order of worth.
#
#     make gpu-half-hour INSTALL=no PYTHON=python3
#     tests/gpu/half_hour.sh python3 facts kernels     # these steps alone
#
# Runs from the source tree with the PyTorch of this Python, and installs nothing. Every step has a limit in seconds,
# and one that fails keeps none from running. What it prints lies in build/gpu, from its beginning on: a machine that is
# taken away leaves what was found. The exit status is the number of steps that failed.
cd "$(dirname "$0")/../.." || exit
python=$1 only=" ${*:2} " failed=0
[ -d .gpu/packages ] && packages=:$PWD/.gpu/packages
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD$packages
mkdir -p build/gpu

# step NAME SECONDS COMMAND...
step() {
    [[ "$only" == "  " || "$only" == *" $1 "* ]] || return
    local began=$SECONDS
    timeout -s KILL "$2" "${@:3}" >"build/gpu/$1.txt" 2>"build/gpu/$1.err"
    local status=$?
    echo "$1: exit status $status after $((SECONDS - began)) s"
    [ $status = 0 ] || failed=$((failed + 1))
}

tests="$python tests/gpu/run.py -q"
shared="env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=2 NCCL_NVLS_ENABLE=0 CUDA_MODULE_LOADING=EAGER NCCL_DEBUG=WARN"
metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,smsp__inst_executed.sum
metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread

step machine 20 nvidia-smi
step facts 60 "$python" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())'
step compile 120 "$python" -m zenc compile balanced --target cuda --arch sm_90 -o build/gpu-compiled
step kernels 300 $tests -n14 --maxfail=30 tests/targets/cuda
step train 120 "$python" -m tests.gpu.train nccl cuda:0
step graphs 120 "$python" -m tests.gpu.graphs nccl cuda:0
step emulator 90 $tests tests/emulator # what it says of streams and graphs
step calls 300 $tests -n12 -k "not real_nccl" tests/gpu/test_calls.py
step call 300 "$python" -m benchmarks.gpu_call
step plain 300 env ZENC_GPU_GRAPHS=0 "$python" -m benchmarks.gpu_call # without replays
step counters 240 ncu --csv --clock-control none --metrics $metrics "$python" -m benchmarks.gpu_call --repeat 1
step nccl 180 $shared $tests -k real_nccl tests/gpu/test_calls.py
step ddp 240 $shared $tests tests/gpu/test_ddp.py
step queue 120 $shared CUDA_DEVICE_MAX_CONNECTIONS=1 $tests -k training tests/gpu/test_ddp.py
step races 580 $tests -m "gpu and slow" -n4 tests/gpu/test_sanitizer.py
exit $failed
