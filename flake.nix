# Development shell, wheel and checks for Nix; docs/nix.md says what was tried. Only nixpkgs is needed: compilers,
# CUDA and libraries come from the pins of third_party/fetch, as in every other build.
{
  description = "Foundry: captured CUDA graphs that survive the process";

  inputs.nixpkgs.url = "nixpkgs/nixos-25.05";

  outputs = { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      # The interpreter that the default package is for, and those that wheels are built for.
      python = pkgs.python312;
      pythons = [ pkgs.python310 pkgs.python311 pkgs.python312 pkgs.python313 ];

      # What tools/bazelw and the rules expect of a machine. Compilers of the pins are programs for a usual Linux: they
      # look for their loader in /lib64, so builds run in an environment that has one.
      machine = pkgs.buildFHSEnv {
        name = "foundry-machine";
        targetPkgs = p: [
          p.apt
          p.bash
          p.bazelisk
          p.coreutils
          p.diffutils
          p.dpkg
          p.file
          p.gcc
          p.git
          p.gnugrep
          p.gnused
          p.gnutar
          p.util-linux
          p.which
          p.zlib
          (python.withPackages (packages: [ packages.pip ]))
        ] ++ pythons ++ [
          # For tools/lint.
          p.buildifier
          p.clang-tools
          p.mypy
          p.ruff
          p.shellcheck
        ];
        runScript = "bash";
      };

      # Everything the offline build fetches; its content is pinned file by file in the tree. The mirror of Debian's
      # packages and pip's index are those of the environment (FOUNDRY_DEBIAN_MIRROR, PIP_INDEX_URL).
      vendor = pkgs.stdenvNoCC.mkDerivation {
        name = "foundry-vendor";
        src = self;
        nativeBuildInputs = [ machine ];
        impureEnvVars = pkgs.lib.fetchers.proxyImpureEnvVars
          ++ [ "FOUNDRY_DEBIAN_MIRROR" "PIP_CERT" "PIP_INDEX_URL" ];
        buildPhase = ''
          export HOME=$TMPDIR
          foundry-machine -c "python3 tools/vendor $out"
        '';
        dontInstall = true;
        dontFixup = true;
        outputHashMode = "recursive";
        outputHash = import ./third_party/vendor_hash.nix;
      };

      wheel = pkgs.stdenvNoCC.mkDerivation {
        name = "foundry-wheel";
        src = self;
        nativeBuildInputs = [ machine ];
        # The copy in the store has no git: what is known of the commit is written down as in an archive.
        postPatch = ''
          if grep -q 'Format:' .git_archival.txt; then
            printf 'commit: ${self.rev or ""}\ndescribe: \n' >.git_archival.txt
          fi
        '';
        buildPhase = ''
          export HOME=$TMPDIR FOUNDRY_CACHE=$TMPDIR/cache FOUNDRY_VENDOR=${vendor}
          foundry-machine -c "tools/bazelw build //:wheel && tools/bazelw cquery --output=files //:wheel >wheel.txt"
        '';
        installPhase = ''
          mkdir -p $out
          cp $(grep '\.whl$' wheel.txt) $out/
        '';
      };

      foundry = python.pkgs.buildPythonPackage {
        pname = "foundry";
        version = self.shortRev or "modified";
        format = "other";
        dontUnpack = true;
        nativeBuildInputs = [ python.pkgs.pip ];
        propagatedBuildInputs = [ python.pkgs.rich python.pkgs.typer ];
        installPhase = ''
          python3 -m pip install --no-deps --no-index --prefix=$out ${wheel}/*.whl
        '';
        dontStrip = true; # the files are those of the wheel, byte for byte
      };

      environment = python.withPackages (_: [ foundry ]);
    in
    {
      packages.${system} = {
        default = foundry;
        inherit vendor wheel;
      };

      devShells.${system}.default = machine.env;

      checks.${system} = {
        # The wheel restores graphs on the simulated driver.
        quickstart = pkgs.runCommand "foundry-quickstart" { nativeBuildInputs = [ environment ]; } ''
          HOME=$TMPDIR python3 -m foundry.recipes.quickstart --simulated >$out
        '';
        lint = pkgs.runCommand "foundry-lint"
          { nativeBuildInputs = [ python pkgs.buildifier pkgs.clang-tools pkgs.ruff pkgs.shellcheck ]; } ''
          cp -r ${self} tree && chmod -R u+w tree
          python3 tree/tools/lint clang-format ruff ruff-format shellcheck buildifier hosts >$out
        '';
      };
    };
}
