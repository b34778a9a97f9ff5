# Stands for nixpkgs where it cannot be fetched: the attributes and functions that flake.nix uses, as derivations
# that are evaluated and never built. A name that is missing here is an error there, so list only what nixpkgs has.
{
  outputs = { self }:
    let
      system = "x86_64-linux";
      # Keeps what a derivation can hold, so that everything in it is evaluated.
      derive = name: arguments: derivation ({
        inherit name system;
        builder = "/bin/sh";
      } // builtins.removeAttrs arguments [ "name" "env" "passthru" ]);
      package = name: derive name { };
      named = names: builtins.listToAttrs (map (name: { inherit name; value = package name; }) names);
      interpreter = name: package name // {
        withPackages = choose: derive "${name}-env" { paths = choose libraries; };
        pkgs = libraries // {
          buildPythonPackage = arguments: derive "${arguments.pname}-${arguments.version}" arguments;
        };
      };
      libraries = named [ "pip" "rich" "typer" ];
      packages = named [
        "apt" "bash" "bazelisk" "buildifier" "clang-tools" "coreutils" "diffutils" "dpkg" "file" "gcc" "git" "gnugrep"
        "gnused" "gnutar" "mypy" "ruff" "shellcheck" "util-linux" "which" "zlib"
      ] // {
        python310 = interpreter "python310";
        python311 = interpreter "python311";
        python312 = interpreter "python312";
        python313 = interpreter "python313";
        lib.fetchers.proxyImpureEnvVars = [ "http_proxy" "https_proxy" ];
        stdenvNoCC.mkDerivation = arguments: derive arguments.name arguments;
        runCommand = name: arguments: script: derive name (arguments // { inherit script; });
        buildFHSEnv = arguments:
          let contents = { inherit (arguments) runScript; paths = arguments.targetPkgs packages; };
          in derive arguments.name contents // { env = derive "${arguments.name}-env" contents; };
      };
    in
    { legacyPackages.${system} = packages; };
}
