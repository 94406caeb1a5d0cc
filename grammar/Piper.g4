// The `.piper` strategy language. Newlines are white space: every statement starts with a reserved word, and no
// expression can go on with one. Words of clauses (`over`, `zero`, `path`, `batch`, ...) are tokens of their own but
// stay usable as names: rule `name`. src/frontend/piper/parse.cpp turns the tree into a plain AST; entry rules are
// `file`, `expression` (a -D value) and `setting` (a --set value), and the heads and statements that recovery uses.
grammar Piper;

file: statement* EOF;
expression: expr EOF;
setting: trainItem EOF;

statement: simpleStatement | forStatement | ifStatement | trainStatement;

simpleStatement
    : useStatement
    | paramStatement
    | letStatement
    | fnStatement
    | meshStatement
    | dimStatement
    | treatStatement
    | tagStatement
    | placeStatement
    | replicateStatement
    | shardStatement
    | splitStatement
    | orderStatement
    | recomputeStatement
    | streamStatement
    | freezeStatement
    | tieStatement
    | assertStatement
    ;

forStatement: forHead block;
forHead: FOR name IN expr;
ifStatement: ifHead block (ELSE (ifStatement | block))?;
ifHead: IF expr;
block: '{' statement* '}';

// Definitions.
useStatement: USE (name | STRING AS name);
paramStatement: PARAM name '=' expr STRING?;
letStatement: LET name '=' expr;
fnStatement: FN name '(' (name (',' name)* ','?)? ')' '=' expr;
meshStatement: MESH name '[' binding (',' binding)* ','? ']';
dimStatement: DIM STRING '=' expr;
treatStatement: TREAT STRING AS name;

// Annotations and directives.
tagStatement: TAG name '=' expr (WHERE expr)?;
placeStatement: PLACE expr ON expr placeClause*;
placeClause: P2P_STREAM expr;
replicateStatement: REPLICATE expr OVER name replicateClause*;
replicateClause: (ZERO | BUCKET | REDUCE_STREAM | GATHER_STREAM | PREFETCH) expr | REDUCE_DTYPE name;
shardStatement
    : SHARD PARAM STRING DIM expr OVER name           # shardParam
    | SHARD expr OVER name AS EXPERTS shardClause*    # shardExperts
    ;
shardClause: (A2A_STREAM | MAX_LOAD) expr;
splitStatement: SPLIT expr INTO expr AS name;
orderStatement: ORDER expr;
recomputeStatement: RECOMPUTE expr;
streamStatement: STREAM expr streamClause*;
streamClause: PRIORITY name | SMS expr;
freezeStatement: FREEZE PARAM STRING;
tieStatement: TIE STRING STRING TRANSPOSED?;
assertStatement: ASSERT expr ',' expr;

// Training.
trainStatement: TRAIN '{' trainItem* '}';
trainItem
    : (LOSS | OPTIMIZER | SCHEDULE | CLIP_NORM | BATCH | SEED | COUPLED_GROUPS) expr
    | (BATCH_NORM | ON_NONFINITE | PRECISION) name
    | NO_DECAY PARAM STRING
    | INIT PARAM STRING expr
    ;

// Expressions, tightest first. Prefix forms with words (`if`, `let`, `assert`) extend as far right as they can.
expr
    : expr '[' expr ']'                                         # index
    | '-' expr                                                  # negate
    | expr ('*' | '/' | '%') expr                               # binary
    | expr ('+' | '-') expr                                     # binary
    | expr '..' expr                                            # binary
    | expr ('==' | '!=' | '<' | '<=' | '>' | '>=') expr         # binary
    | NOT expr                                                  # invert
    | expr AND expr                                             # binary
    | expr OR expr                                              # binary
    | expr '++' expr                                            # binary
    | expr '|' expr                                             # binary
    | LET name '=' expr IN expr                                 # letIn
    | IF expr THEN expr ELSE expr                               # ifElse
    | ASSERT expr ',' expr IN expr                              # assertIn
    | (PATH | NAME | OP | PARAM | INPUT | OUTPUT) (STRING | name)  # match
    | HAS name                                                  # has
    | (ALL | PASS) '(' (constraint (',' constraint)* ','?)? ')' # selector
    | name '[' binding (',' binding)* ','? ']'                  # devices
    | (name '.')? name '(' (argument (',' argument)* ','?)? ')' # call
    | '[' expr comprehension+ ']'                               # listOf
    | '[' (expr (',' expr)* ','?)? ']'                          # list
    | '(' expr ')'                                              # group
    | name                                                      # variable
    | (INT | FLOAT | SIZE | STRING | TRUE | FALSE)              # literal
    ;
comprehension: FOR name IN expr (IF expr)*;
binding: name '=' expr;
argument: (name '=')? expr;
constraint: name '=' ('*' | '-' | expr);

// Every word that is not reserved.
name
    : ID | A2A_STREAM | AS | BATCH | BATCH_NORM | BUCKET | CLIP_NORM | COUPLED_GROUPS | EXPERTS | GATHER_STREAM | HAS | INIT | INPUT
    | INTO | LOSS | MAX_LOAD | NAME | NO_DECAY | ON | ON_NONFINITE | OP | OPTIMIZER | OUTPUT | OVER | P2P_STREAM | PATH
    | PRECISION | PREFETCH | PRIORITY | REDUCE_DTYPE | REDUCE_STREAM | SCHEDULE | SEED | SMS | TRANSPOSED | WHERE | ZERO
    ;

// Reserved words.
AND: 'and';
ASSERT: 'assert';
DIM: 'dim';
ELSE: 'else';
FALSE: 'false';
FN: 'fn';
FOR: 'for';
FREEZE: 'freeze';
IF: 'if';
IN: 'in';
LET: 'let';
MESH: 'mesh';
NOT: 'not';
OR: 'or';
ORDER: 'order';
PARAM: 'param';
PLACE: 'place';
RECOMPUTE: 'recompute';
REPLICATE: 'replicate';
SHARD: 'shard';
SPLIT: 'split';
STREAM: 'stream';
TAG: 'tag';
THEN: 'then';
TIE: 'tie';
TRAIN: 'train';
TREAT: 'treat';
TRUE: 'true';
USE: 'use';
ALL: 'all';
PASS: 'F' | 'B' | 'I' | 'W' | 'U';

// Words of clauses.
A2A_STREAM: 'a2a_stream';
AS: 'as';
BATCH: 'batch';
BATCH_NORM: 'batch_norm';
BUCKET: 'bucket';
CLIP_NORM: 'clip_norm';
COUPLED_GROUPS: 'coupled_groups';
EXPERTS: 'experts';
GATHER_STREAM: 'gather_stream';
HAS: 'has';
INIT: 'init';
INPUT: 'input';
INTO: 'into';
LOSS: 'loss';
MAX_LOAD: 'max_load';
NAME: 'name';
NO_DECAY: 'no_decay';
ON: 'on';
ON_NONFINITE: 'on_nonfinite';
OP: 'op';
OPTIMIZER: 'optimizer';
OUTPUT: 'output';
OVER: 'over';
P2P_STREAM: 'p2p_stream';
PATH: 'path';
PRECISION: 'precision';
PREFETCH: 'prefetch';
PRIORITY: 'priority';
REDUCE_DTYPE: 'reduce_dtype';
REDUCE_STREAM: 'reduce_stream';
SCHEDULE: 'schedule';
SEED: 'seed';
SMS: 'sms';
TRANSPOSED: 'transposed';
WHERE: 'where';
ZERO: 'zero';

ID: [A-Za-z_] [A-Za-z0-9_]*;

// A float has digits on both sides of its dot, so that `0..4` is a range.
SIZE: DIGITS ('.' DIGITS)? ('B' | 'KB' | 'MB' | 'GB' | 'KiB' | 'MiB' | 'GiB');
FLOAT: DIGITS '.' DIGITS EXPONENT? | DIGITS EXPONENT;
INT: DIGITS;
BAD_NUMBER: DIGITS ('.' DIGITS)? [A-Za-z_] [A-Za-z0-9_]*;
fragment DIGITS: [0-9]+;
fragment EXPONENT: [eE] [+-]? DIGITS;

STRING: '"' (~["\\\r\n] | '\\' ~[\r\n])* '"';
OPEN_STRING: '"' (~["\\\r\n] | '\\' ~[\r\n])* '\\'?;

COMMENT: '#' ~[\r\n]* -> channel(HIDDEN);
SPACE: [ \t]+ -> channel(HIDDEN);
NEWLINE: '\r'? '\n' -> channel(HIDDEN);
BAD_CHARACTER: .;
