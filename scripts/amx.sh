#!/usr/bin/env bash
# Tests of CPU level `amx` on an emulated CPU that has it. Run on x86-64 Debian:
#
#   scripts/amx.sh build              build the emulator, Bochs, into target/amx (minutes)
#   scripts/amx.sh run                run the tests of tiles, and a few cases of the op suite at level amx
#   scripts/amx.sh run NAME ARGS...   run the tests of the file NAME, with arguments of its binary
#
# An emulator shows that the instructions are there and results right, never how fast they are. Bochs boots Debian's kernel,
# so the permission of the system is tested too. Packages are unpacked into target/amx, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/amx
root=$here/root
bochs=$here/bochs-3.0/bochs

# Debian's source package of Bochs 3.0, which is in Debian 13.
SUITE=trixie
VERSION=3.0+dfsg-1
SOURCE=bochs_3.0+dfsg.orig.tar.xz
SHA256=78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b

# Bochs lacks extended feature disable (XFD), without which Linux enables no tiles. It saves tiles if they are *not* in use,
# only half of their rows, and their configuration with rows and bytes exchanged. $1 is the folder of the emulated CPU, of which there is one.
mend() {
    cp -r "$1" "$1.orig"
    sed -i -e 's/^void BX_CPU_C::handleAvxModeChange(void)$/Bit64u xfd = 0, xfd_err = 0;\n&/' \
        -e '/void BX_CPU_C::handleAvxModeChange/,/set_amx_ok/s/BX_XCR0_XTILEDATA_MASK)) != 0)/BX_XCR0_XTILEDATA_MASK)) != 0 || (xfd \& BX_XCR0_XTILEDATA_MASK))/' \
        -e '/BX_CPU_C::BxNoAMX/,/BX_ASSERT/s/^  BX_ASSERT(0);/  if (xfd \& BX_XCR0_XTILEDATA_MASK) {\n    xfd_err |= BX_XCR0_XTILEDATA_MASK;\n    exception(BX_NM_EXCEPTION, 0);\n  }\n&/' \
        "$1/proc_ctrl.cc"
    sed -i -e 's/^bool .*BX_CPU_C::rdmsr(Bit32u index, Bit64u \*msr)$/extern Bit64u xfd, xfd_err;\n&/' \
        -e '/BX_CPU_C::rdmsr(Bit32u index/,/val64 = 0/s/^  Bit64u val64 = 0;/&\n  if (index == 0x1c4 || index == 0x1c5) {\n    *msr = index == 0x1c4 ? xfd : xfd_err;\n    return true;\n  }/' \
        -e '/BX_CPU_C::wrmsr(Bit32u index, Bit64u val_64)/,/BX_INSTR_WRMSR/s/^  BX_INSTR_WRMSR.*/&\n  if (index == 0x1c4 || index == 0x1c5) {\n    (index == 0x1c4 ? xfd : xfd_err) = val_64;\n    handleAvxModeChange();\n    return true;\n  }/' \
        "$1/msr.cc"
    sed -i -e '/EAX\[4\] - support for XFD/,/return/s/^    leaf->eax = 0;/    leaf->eax = (cpu->xcr0_suppmask \& BX_XCR0_XTILEDATA_MASK) ? 16 : 0;/' \
        -e 's/^      leaf->ecx = (cpu->ia32_xss_suppmask.*/&\n      if (subfunction == xcr0_t::BX_XCR0_XTILEDATA_BIT) leaf->ecx |= 4;/' \
        "$1/cpuid.cc"
    sed -i -e 's/^bool BX_CPU_C::xsave_tiledata_state_xinuse(void)$/extern Bit64u xfd;\n&/' \
        -e 's/^  return (BX_CPU_THIS_PTR amx->tile_use_tracker == 0);.*/  return BX_CPU_THIS_PTR amx->tile_use_tracker != 0 \&\& (xfd \& BX_XCR0_XTILEDATA_MASK) == 0;/' \
        -e 's/tilecfg.vmm16u(8+n) .*/tilecfg.vmm16u(8+n) = BX_CPU_THIS_PTR amx->tilecfg[n].bytes_per_row;/' \
        -e 's/tilecfg.vmmubyte(48+n) .*/tilecfg.vmmubyte(48+n) = BX_CPU_THIS_PTR amx->tilecfg[n].rows;/' \
        -e 's/row < BX_TILE_REGISTERS/row < BX_TILE_MAX_ROWS/' "$1/xsave.cc"
    # The second half of VCVTNE2PS2BF16 reads past its operand.
    sed -i -e '/BX_CPU_C::VCVTNE2PS2BF16/,/opmask/s/op1.vmm32u(n)/op1.vmm32u(n - DWORD_ELEMENTS(len))/' "$1/avx/avx512_bf16.cc"
    # A gather's index above register 15 is an illegal instruction.
    sed -i -e 's/^      i->setSibIndex(i->sibIndex() | (vvv & 0x10));/&\n      vvv \&= 15;/' "$1/decoder/fetchdecode32.cc"
    local count
    count=$(diff -r "$1.orig" "$1" | grep -c '^>') || true
    [ "$count" -eq 26 ] || { echo "Bochs: $count of 26 lines changed; its source is another" >&2; return 1; }
}

# Unpacks packages of this release: the BIOS, a boot loader, a kernel and a shell.
unpack() {
    local kernel packages=(bochsbios vgabios isolinux syslinux-common genisoimage busybox-static)
    apt-get update -qq
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends/ { print $2 }')
    mkdir -p "$here/debs"
    (cd "$here/debs" && apt-get -o APT::Sandbox::User=root download -qq "${packages[@]}" "$kernel")
    for package in "$here"/debs/*.deb; do dpkg-deb --extract "$package" "$root"; done
    rm -rf "$here/debs"
}

# Downloads the source, for which apt gets lists of its own.
source_of_bochs() {
    local uri lists=(-o Dir::Etc::sourcelist="$here/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::Lists="$here/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
    uri=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | head -1)
    mkdir -p "$here/lists/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $SUITE main" >"$here/sources.list"
    apt-get "${lists[@]}" update -qq
    # Other files of the package are not needed, and may be missing in a mirror.
    (cd "$here" && apt-get "${lists[@]}" source -qq --download-only "bochs=$VERSION") || true
    (cd "$here" && echo "$SHA256  $SOURCE" | sha256sum --check --quiet && tar -xf "$SOURCE")
}

build() {
    [ -x "$bochs" ] && return
    rm -rf "$here"
    mkdir -p "$here"
    unpack
    source_of_bochs
    mend "$here/bochs-3.0/cpu"
    (cd "$here/bochs-3.0" && ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-amx \
        --enable-all-optimizations --enable-pci --enable-cdrom --with-nogui --disable-docbook CXXFLAGS='-O2 -w' \
        && make -j"$(nproc)") >"$here/build.log" 2>&1 || { tail -30 "$here/build.log"; return 1; }
}

# boot BINARY ARGUMENTS...: boots Linux, which runs a dynamically linked program with its libraries, and returns its status.
boot() {
    local binary=$1 library tree=$here/tree iso=$here/iso log=$here/serial.log
    shift
    rm -rf "$tree" "$iso"
    mkdir -p "$tree"/{bin,dev,proc,tmp} "$iso/isolinux"
    cp "$root/bin/busybox" "$tree/bin/"
    cp "$binary" "$tree/bin/program"
    strip "$tree/bin/program"
    for library in $(ldd "$binary" | grep -oE '/[^ ]+'); do cp --parents -L "$library" "$tree"; done
    cat >"$tree/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
SUITE_SEED=${SUITE_SEED:-$RANDOM} RUST_BACKTRACE=0 /bin/program $*
status=\$?
[ \$status = 0 ] || /bin/busybox dmesg | /bin/busybox tail -n 3
echo "status \$status"
/bin/busybox sleep 1
/bin/busybox reboot -f
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | "$root/bin/busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$iso/initrd.gz"
    cp "$root"/boot/vmlinuz-* "$iso/vmlinuz"
    cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$iso/isolinux/"
    # Bochs copies overlapping bytes wrongly if the kernel relies on fast short REP MOVSB, and has no SMM of five levels.
    cat >"$iso/isolinux/isolinux.cfg" <<LOADER
DEFAULT linux
LABEL linux
 KERNEL /vmlinuz
 APPEND initrd=/initrd.gz console=ttyS0 loglevel=1 nokaslr no5lvl clearcpuid=fsrm,erms mitigations=off panic=1 reboot=t
LOADER
    "$root/usr/bin/genisoimage" -quiet -o "$here/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$iso"
    cat >"$here/bochsrc" <<CONFIG
cpu: model=sapphire_rapids, count=1, ips=50000000, exclude_features="cet,uintr,pks,pku,la57"
memory: guest=2048, host=2048
romimage: file=$root/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=$root/usr/share/vgabios/vgabios.stdvga.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$here/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$log
display_library: nogui
log: $here/bochs.log
panic: action=fatal
clock: sync=none
CONFIG
    rm -f "$log"
    "$bochs" -q -f "$here/bochsrc" >"$here/bochs.out" 2>&1 </dev/null &
    local emulator=$!
    # After the tests the kernel restarts, which would boot it again.
    until grep -q '^status ' "$log" 2>/dev/null || ! kill -0 "$emulator" 2>/dev/null; do sleep 1; done
    kill "$emulator" 2>/dev/null || true
    wait "$emulator" 2>/dev/null || true
    tr -d '\r' <"$log" | sed -n '/^running /,/^status /p'
    tr -d '\r' <"$log" | grep -q '^status 0$'
}

# test_binary NAME: builds a file of tests, and prints the path of its binary.
test_binary() {
    local built
    built=$(cargo test --workspace --no-run --test "$1" 2>&1) || { tail -50 <<<"$built" >&2; return 1; }
    sed -n "s|.*Executable .*(\(.*/$1-[0-9a-f]*\)).*|\1|p" <<<"$built" | head -1
}

run() {
    build
    if [ $# -gt 0 ]; then
        boot "$(test_binary "$1")" "${@:2}"
    else
        boot "$(test_binary tiles)" --nocapture
        boot "$(test_binary levels)" --nocapture --ignored few_cases_of_unmeasured_levels
    fi
}

case ${1:-} in
build) build ;;
run) run "${@:2}" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
